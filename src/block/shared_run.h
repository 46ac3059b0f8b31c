// Work that many callers want done and that one run does for all who asked before it began: group
// commit. Any thread.
#pragma once
#include <cstdint>

#include "common/mutex.h"
#include "common/status.h"

namespace starlane::block {

class SharedRun {
 public:
  /// Blocks until a run of `work` that began after this call is over, in this thread or another;
  /// its result. All callers pass the same work.
  template <typename Work>
  Status run(Work work) {
    MutexLock lock(m_);
    const std::uint64_t mine = ++asked_;
    while (done_ < mine) {
      if (running_) {
        ended_.wait(m_);
        continue;
      }
      running_ = true;
      const std::uint64_t upto = asked_;
      m_.unlock();
      Status status = work();
      m_.lock();
      running_ = false;
      done_ = upto;
      last_ = std::move(status);
      ended_.notify_all();
    }
    return last_;  // perhaps of a later run, which did what ours had to do and more
  }

 private:
  Mutex m_;
  CondVar ended_;
  std::uint64_t asked_ SL_GUARDED_BY(m_) = 0;
  std::uint64_t done_ SL_GUARDED_BY(m_) = 0;
  bool running_ SL_GUARDED_BY(m_) = false;
  Status last_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::block
