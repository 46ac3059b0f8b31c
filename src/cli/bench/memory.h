// Page-aligned memory to read into: at hand before the clock starts, or new, so that the first use
// of each page is measured too. Movable; one owner.
#pragma once
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <thread>
#include <utility>
#include <vector>

#include "common/bytes.h"
#include "common/errno.h"
#include "common/status.h"

namespace starlane::cli::bench {

class Memory {
 public:
  static Result<Memory> of(std::uint64_t bytes) { return map(bytes, MAP_POPULATE); }
  static Result<Memory> fresh(std::uint64_t bytes) { return map(bytes, 0); }
  Memory(Memory&& other) noexcept
      : at_(std::exchange(other.at_, nullptr)), length_(std::exchange(other.length_, 0)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(at_, other.at_);
    std::swap(length_, other.length_);
    return *this;
  }
  ~Memory() {
    if (at_ != nullptr) ::munmap(at_, length_);
  }

  MutableByteSpan span() const { return {at_, length_}; }

 private:
  Memory(std::byte* at, std::uint64_t length) : at_(at), length_(length) {}
  static Result<Memory> map(std::uint64_t bytes, int flags) {
    void* const at =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (at == MAP_FAILED) return system_error("cannot allocate memory to read into", errno);
    return Memory(static_cast<std::byte*>(at), bytes);
  }

  std::byte* at_;
  std::uint64_t length_;
};

/// So much memory is at hand for whoever needs it while this lives. A virtual machine's host takes
/// free memory back within a moment; what its return costs (measured: ten times clearing it) is not
/// the file system's, and would fall on whichever side of a comparison comes first. So this holds
/// memory that was used before, and gives it free a little before it is taken.
class MemoryAtHand {
 public:
  explicit MemoryAtHand(std::uint64_t bytes);
  ~MemoryAtHand();
  MemoryAtHand(const MemoryAtHand&) = delete;
  MemoryAtHand& operator=(const MemoryAtHand&) = delete;

 private:
  void give_free_in_time();

  std::vector<Memory> held_;  // the thread's, once it runs
  std::atomic<bool> ended_{false};
  std::thread giver_;
};

}  // namespace starlane::cli::bench
