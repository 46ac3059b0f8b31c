// Calls of the C interface that are under way: each has a number by which its waits can be ended,
// by sl_interrupt or when the client's patience is over. Any thread; a Scope belongs to one.
#pragma once
#include <cstdint>
#include <map>
#include <thread>

#include "client/vfs.h"
#include "common/mutex.h"
#include "common/thread_pool.h"

namespace starlane::capi {

class Calls {
 public:
  /// patience: of one call; zero: for ever. vfs outlives it.
  Calls(client::Vfs& vfs, Nanoseconds patience);
  ~Calls();
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  class Scope {
   public:
    explicit Scope(Calls& of);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

    const client::Caller& caller() const { return caller_; }
    /// What an application is told of a failed wait.
    Status told(Status status) const;
    /// interrupted, timeout: as told.
    Status sleep(Nanoseconds duration) const;

   private:
    Calls& of_;
    client::Caller caller_;
  };

  void interrupt_all() SL_EXCLUDES(m_);
  void interrupt(std::uint64_t unique) SL_EXCLUDES(m_);

 private:
  struct Call {
    Deadline deadline = Deadline::never();
    bool interrupted = false, late = false;
  };
  void watch() SL_EXCLUDES(m_);
  Nanoseconds end_late() SL_REQUIRES(m_);

  client::Vfs& vfs_;
  const Nanoseconds patience_;
  Mutex m_;
  CondVar changed_;
  bool stopping_ SL_GUARDED_BY(m_) = false;
  std::uint64_t last_ SL_GUARDED_BY(m_) = 0;
  std::map<std::uint64_t, Call> under_way_ SL_GUARDED_BY(m_);  // by number: the oldest first
  std::thread watcher_;                                        // only where patience has an end
};

}  // namespace starlane::capi
