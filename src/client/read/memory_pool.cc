#include "client/read/memory_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "common/bytes.h"
#include "common/status.h"

namespace starlane::client {
namespace {

constexpr std::size_t kLargest = MemoryPool::kUnit << MemoryPool::kTopOrder;

std::size_t usable(std::uint64_t bytes) {
  return std::max<std::size_t>(round_down(bytes, kLargest), kLargest);
}

}  // namespace

MemoryPool::MemoryPool(std::uint64_t bytes)
    : mapped_(usable(bytes) + kHugePage),
      buddy_(static_cast<std::uint32_t>(usable(bytes) / kUnit), kTopOrder) {
  void* const map = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  SL_CHECK(map != MAP_FAILED);  // address space alone: nothing is committed
  map_ = static_cast<std::byte*>(map);
  base_ = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(map_), kHugePage));
  static_cast<void>(
      ::madvise(base_, usable(bytes), MADV_HUGEPAGE));  // a hint; refused where there are none
}

MemoryPool::~MemoryPool() { ::munmap(map_, mapped_); }

std::optional<MemoryPool::Piece> MemoryPool::take(unsigned order) {
  MutexLock lock(m_);
  const auto unit = buddy_.take(order);
  if (!unit) return std::nullopt;
  used_ += kUnit << order;
  return Piece{base_ + *unit * kUnit, order, false};
}

MemoryPool::Piece MemoryPool::take_spare(unsigned order) {
  used_ += kUnit << order;
  return {static_cast<std::byte*>(::operator new(kUnit << order, std::align_val_t(4096))), order,
          true};
}

void MemoryPool::give(const Piece& piece) {
  used_ -= kUnit << piece.order;
  if (piece.spare) {
    ::operator delete(piece.at, std::align_val_t(4096));
    return;
  }
  MutexLock lock(m_);
  buddy_.give(static_cast<std::uint32_t>(static_cast<std::size_t>(piece.at - base_) / kUnit),
              piece.order);
}

}  // namespace starlane::client
