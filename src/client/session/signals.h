// Waits that an application's signal or the client's stop can end. The kernel says "the request
// with this unique was interrupted" once, perhaps before anybody waits for it; uniques are never
// used twice. Any thread.
#pragma once
#include <array>
#include <cstdint>

#include "common/clock.h"
#include "common/mutex.h"
#include "common/status.h"

namespace starlane::client {

class Signals {
 public:
  /// 0 names nobody.
  void interrupt(std::uint64_t unique) SL_EXCLUDES(m_);
  /// Every wait ends, now and later.
  void stop() SL_EXCLUDES(m_);

  /// Ok after `duration`. Errors: interrupted (unique was), unavailable (stopped).
  Status sleep(std::uint64_t unique, Nanoseconds duration) SL_EXCLUDES(m_);
  Status check(std::uint64_t unique) SL_EXCLUDES(m_);

 private:
  Status state_of(std::uint64_t unique) const SL_REQUIRES(m_);

  Mutex m_;
  CondVar changed_;
  bool stopped_ SL_GUARDED_BY(m_) = false;
  // The latest interrupts: more than there can be requests between their arrival and their first
  // wait.
  std::array<std::uint64_t, 1024> recent_ SL_GUARDED_BY(m_){};
  std::size_t next_ SL_GUARDED_BY(m_) = 0;
};

}  // namespace starlane::client
