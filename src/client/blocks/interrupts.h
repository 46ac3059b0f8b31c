// Waits that an application's signal, or the end of the client, can cut short. A request that waits
// for servers holds a Scope of its kernel number; interrupt() ends its waits with `interrupted`.
// Any thread; a Scope belongs to one.
#pragma once
#include <array>
#include <cstdint>
#include <unordered_map>

#include "common/clock.h"
#include "common/mutex.h"
#include "common/status.h"

namespace starlane::client {

class Interrupts {
 public:
  /// One request's presence. unique 0: background work, which only stop() interrupts.
  class Scope {
   public:
    Scope(Interrupts& of, std::uint64_t unique);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

    bool interrupted() const;
    /// Waits for `duration`, or less. interrupted: give up.
    Status sleep(Nanoseconds duration) const;
    std::uint64_t unique() const { return unique_; }

   private:
    Interrupts& of_;
    const std::uint64_t unique_;
  };

  /// Holds for scopes of that number which are still to come, too: the kernel's word may overtake
  /// the request's thread.
  void interrupt(std::uint64_t unique) SL_EXCLUDES(m_);
  /// Every wait, present and future, ends with `interrupted`.
  void stop() SL_EXCLUDES(m_);
  bool stopped() const SL_EXCLUDES(m_);

 private:
  struct Request {
    int scopes = 0;
    bool interrupted = false;
  };
  bool interrupted(std::uint64_t unique) const SL_REQUIRES(m_);

  mutable Mutex m_;
  CondVar changed_;
  bool stopped_ SL_GUARDED_BY(m_) = false;
  std::unordered_map<std::uint64_t, Request> requests_ SL_GUARDED_BY(m_);
  // Numbers that were interrupted lately: the kernel never gives one twice.
  std::array<std::uint64_t, 128> recent_ SL_GUARDED_BY(m_){};
  std::size_t next_recent_ SL_GUARDED_BY(m_) = 0;
};

}  // namespace starlane::client
