// A number of bytes that may be in use at once: what bounds every buffer, cache and queue of data.
#pragma once
#include <cstdint>

#include "common/clock.h"
#include "common/mutex.h"
#include "common/status.h"

namespace starlane {

/// Any thread. A single request larger than the limit is let through alone.
class ByteBudget {
 public:
  explicit ByteBudget(std::uint64_t limit_bytes) : limit_(limit_bytes) {}

  /// Blocks until `bytes` fit or the deadline passes (timeout).
  Status take(std::uint64_t bytes, Deadline deadline = Deadline::never()) SL_EXCLUDES(m_) {
    MutexLock lock(m_);
    while (!fits(bytes)) {
      if (deadline.passed()) return Status(Errc::timeout, "no room in a byte budget");
      const Nanoseconds left = deadline.left();
      freed_.wait_for(m_, left < std::chrono::seconds(1) ? left : std::chrono::seconds(1));
    }
    used_ += bytes;
    return {};
  }
  bool try_take(std::uint64_t bytes) SL_EXCLUDES(m_) {
    MutexLock lock(m_);
    if (!fits(bytes)) return false;
    used_ += bytes;
    return true;
  }
  void give(std::uint64_t bytes) SL_EXCLUDES(m_) {
    MutexLock lock(m_);
    SL_CHECK(bytes <= used_);
    used_ -= bytes;
    freed_.notify_all();
  }
  std::uint64_t used() const SL_EXCLUDES(m_) {
    MutexLock lock(m_);
    return used_;
  }
  std::uint64_t limit() const { return limit_; }

 private:
  bool fits(std::uint64_t bytes) const SL_REQUIRES(m_) {
    return used_ == 0 || used_ + bytes <= limit_;
  }

  const std::uint64_t limit_;
  mutable Mutex m_;
  CondVar freed_;
  std::uint64_t used_ SL_GUARDED_BY(m_) = 0;
};

}  // namespace starlane
