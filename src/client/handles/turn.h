// The order of changes of one file on this host: writes side by side, and truncates, copies and the
// like alone. A queue of work, not a lock on data: who has the turn may wait for servers, and only
// changes of the same file wait with it.
#pragma once
#include "common/mutex.h"

namespace starlane::client {

class Turn {
 public:
  class Shared {
   public:
    explicit Shared(Turn& turn) : turn_(turn) {
      MutexLock lock(turn_.m_);
      while (turn_.alone_ || turn_.waiting_alone_ != 0) turn_.changed_.wait(turn_.m_);
      ++turn_.shared_;
    }
    ~Shared() {
      MutexLock lock(turn_.m_);
      if (--turn_.shared_ == 0) turn_.changed_.notify_all();
    }
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;

   private:
    Turn& turn_;
  };

  class Alone {
   public:
    explicit Alone(Turn& turn) : turn_(turn) {
      MutexLock lock(turn_.m_);
      ++turn_.waiting_alone_;
      while (turn_.alone_ || turn_.shared_ != 0) turn_.changed_.wait(turn_.m_);
      --turn_.waiting_alone_;
      turn_.alone_ = true;
    }
    ~Alone() {
      MutexLock lock(turn_.m_);
      turn_.alone_ = false;
      turn_.changed_.notify_all();
    }
    Alone(const Alone&) = delete;
    Alone& operator=(const Alone&) = delete;

   private:
    Turn& turn_;
  };

 private:
  Mutex m_;
  CondVar changed_;
  int shared_ SL_GUARDED_BY(m_) = 0;
  int waiting_alone_ SL_GUARDED_BY(m_) = 0;
  bool alone_ SL_GUARDED_BY(m_) = false;
};

}  // namespace starlane::client
