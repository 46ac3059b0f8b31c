// Fan out, then wait once: the bridge between event loops or pools and straight-line code.
#pragma once
#include <cstddef>
#include <utility>

#include "common/mutex.h"
#include "common/status.h"

namespace starlane {

/// Counts operations in flight. `expect` and `wait` belong to one thread; `done` may be called by
/// any.
class Batch {
 public:
  Batch() = default;
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  ~Batch() { SL_CHECK(pending_ == 0); }

  void expect(std::size_t operations) {
    MutexLock lock(m_);
    pending_ += operations;
  }

  /// Called once for each expected operation. Never blocks beyond the lock.
  void done(const Status& status) {
    MutexLock lock(m_);  // Notify under the lock: wait() may destroy *this the moment it returns.
    if (!status.ok() && first_.ok()) first_ = status;
    if (--pending_ == 0) cv_.notify_one();
  }

  /// Blocks until every expected operation is done. Returns the first failure, or ok.
  Status wait() {
    MutexLock lock(m_);
    while (pending_ != 0) cv_.wait(m_);
    return std::exchange(first_, {});
  }

 private:
  Mutex m_;
  CondVar cv_;
  std::size_t pending_ SL_GUARDED_BY(m_) = 0;
  Status first_ SL_GUARDED_BY(m_);
};

}  // namespace starlane
