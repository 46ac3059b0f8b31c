// The block cache's memory: one huge-page friendly mapping, given out in pieces of 8 KiB to 4 MiB
// and used again, never returned to the kernel, since its first touch costs more than the fetch. A
// small file takes a small piece; what keeps track of them is a thousandth of the memory. Any
// thread.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "client/blocks/buddy.h"
#include "common/mutex.h"

namespace starlane::client {

class MemoryPool {
 public:
  static constexpr std::size_t kUnit = 8 << 10;
  static constexpr unsigned kTopOrder = 9;  // 4 MiB

  struct Piece {
    std::byte* at = nullptr;
    unsigned order = 0;
    bool spare = false;  // from outside the mapping
  };

  /// At least one piece of the largest order.
  explicit MemoryPool(std::uint64_t bytes);
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  /// 2^order units; nothing when the mapping has no such piece.
  std::optional<Piece> take(unsigned order) SL_EXCLUDES(m_);
  /// From outside, when everything is in use: by requests in flight, which bound it.
  Piece take_spare(unsigned order);
  void give(const Piece& piece) SL_EXCLUDES(m_);

  std::uint64_t used_bytes() const { return used_.load(); }

 private:
  std::size_t mapped_ = 0;
  std::byte* map_ = nullptr;
  std::byte* base_ = nullptr;           // on a huge page
  std::atomic<std::uint64_t> used_{0};  // a figure: pairs with nothing
  Mutex m_;
  Buddy buddy_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::client
