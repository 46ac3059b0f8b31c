// Where copies of large files lie: a tmpfs with huge pages that is mounted nowhere and vanishes
// with the process, and a read-only view of it, through which the kernel gets the files so that
// nobody can write into them. Any thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

#include "client/landing.h"
#include "common/bytes.h"
#include "common/status.h"
#include "common/unique_fd.h"

namespace starlane::client {

/// One copy. Its bytes are freed with the last owner, the kernel's opens included.
class CacheFile {
 public:
  CacheFile(UniqueFd writable, UniqueFd read_only, std::byte* map, std::uint64_t length);
  ~CacheFile();
  CacheFile(const CacheFile&) = delete;
  CacheFile& operator=(const CacheFile&) = delete;

  /// For the kernel; opened through the read-only view.
  int backing_fd() const { return read_only_.get(); }
  /// As long as at creation, whatever happens to the file later.
  MutableByteSpan map() const { return {map_, mapped_}; }
  /// Where a part of it is to be read to.
  Landing landing(std::uint64_t offset, std::uint64_t length) {
    return {map().subspan(offset, length), writable_.get(), offset};
  }
  std::uint64_t length() const { return length_.load(std::memory_order_relaxed); }

  /// All of it, or no_space.
  Status write(std::uint64_t offset, ByteSpan bytes);
  Status truncate(std::uint64_t length);
  /// Zeros a range, as far as the file reaches.
  Status zero(std::uint64_t offset, std::uint64_t length);

 private:
  const UniqueFd writable_;
  const UniqueFd read_only_;
  std::byte* const map_;
  const std::uint64_t mapped_;
  std::atomic<std::uint64_t> length_;  // a figure; the callers order changes
};

class CacheMount {
 public:
  /// not_permitted, unsupported: this process or kernel cannot; the text says which.
  static Result<std::unique_ptr<CacheMount>> make(std::uint64_t limit_bytes);

  /// A file of zeros, mapped. no_space, io.
  Result<std::shared_ptr<CacheFile>> create(std::uint64_t length);

 private:
  CacheMount(UniqueFd writable, UniqueFd read_only)
      : writable_(std::move(writable)), read_only_(std::move(read_only)) {}

  const UniqueFd writable_;
  const UniqueFd read_only_;
  std::atomic<std::uint64_t> next_name_{1};  // pairs with nothing
};

/// A quarter of the memory, or half of the control group's limit if that is less.
std::uint64_t default_cache_budget();
/// What can be used without swapping; 0 when it is not known.
std::uint64_t available_memory();

}  // namespace starlane::client
