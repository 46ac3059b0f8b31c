#include "disk/buffer_pool.h"

#include <new>
#include <utility>

#include "common/status.h"
#include "disk/disk.h"

namespace starlane {
namespace {

constexpr std::align_val_t kAlignment{kDiskPage};

}  // namespace

BufferPool::Buffer::Buffer(Buffer&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), data_(std::exchange(other.data_, nullptr)) {}

BufferPool::Buffer& BufferPool::Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    give_back();
    pool_ = std::exchange(other.pool_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
  }
  return *this;
}

void BufferPool::Buffer::give_back() {
  if (pool_ != nullptr) std::exchange(pool_, nullptr)->give(std::exchange(data_, nullptr));
}

BufferPool::BufferPool(Options options)
    : options_{round_up(options.buffer_bytes, kDiskPage), options.limit} {
  SL_CHECK(options_.buffer_bytes > 0 && options_.limit > 0);
}

BufferPool::~BufferPool() {
  MutexLock lock(m_);
  SL_CHECK(in_use_ == 0);
  for (std::byte* data : idle_) ::operator delete(data, kAlignment);
}

BufferPool::Buffer BufferPool::take() {
  MutexLock lock(m_);
  while (in_use_ == options_.limit) freed_.wait(m_);
  ++in_use_;
  if (idle_.empty()) {
    return Buffer(this, static_cast<std::byte*>(::operator new(options_.buffer_bytes, kAlignment)));
  }
  std::byte* data = idle_.back();
  idle_.pop_back();
  return Buffer(this, data);
}

void BufferPool::give(std::byte* data) {
  MutexLock lock(m_);
  --in_use_;
  idle_.push_back(data);
  freed_.notify_one();
}

}  // namespace starlane
