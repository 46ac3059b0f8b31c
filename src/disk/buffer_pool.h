// Page-aligned buffers of one size for transfers, with a limit: what bounds the memory of a store,
// and spares it the page faults of fresh memory.
#pragma once
#include <cstddef>
#include <vector>

#include "common/bytes.h"
#include "common/mutex.h"

namespace starlane {

/// Any thread. Outlives its buffers.
class BufferPool {
 public:
  struct Options {
    std::size_t buffer_bytes = 0;  // rounded up to pages
    std::size_t limit = 16;        // buffers in use at once
  };

  /// A buffer on loan; goes back when destroyed.
  class Buffer {
   public:
    Buffer() = default;
    Buffer(Buffer&& other) noexcept;
    Buffer& operator=(Buffer&& other) noexcept;
    ~Buffer() { give_back(); }
    std::byte* data() const { return data_; }
    std::size_t size() const { return pool_ == nullptr ? 0 : pool_->options_.buffer_bytes; }
    MutableByteSpan span() const { return {data_, size()}; }

   private:
    friend class BufferPool;
    Buffer(BufferPool* pool, std::byte* data) : pool_(pool), data_(data) {}
    void give_back();
    BufferPool* pool_ = nullptr;
    std::byte* data_ = nullptr;
  };

  explicit BufferPool(Options options);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  /// Blocks while `limit` buffers are in use. One thread never holds two: it could wait for itself.
  Buffer take() SL_EXCLUDES(m_);

 private:
  void give(std::byte* data) SL_EXCLUDES(m_);

  const Options options_;
  Mutex m_;
  CondVar freed_;
  std::vector<std::byte*> idle_ SL_GUARDED_BY(m_);
  std::size_t in_use_ SL_GUARDED_BY(m_) = 0;
};

}  // namespace starlane
