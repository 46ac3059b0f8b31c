// Whose heartbeats stand still: each server watches the engine's record of them change on its own
// boot clock, so that neither a jump of wall time, nor a difference between servers, nor a restart
// ends a session that lives. Any thread.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "common/clock.h"
#include "common/ids.h"
#include "common/mutex.h"

namespace starlane::meta {

class LeaseWatch {
 public:
  /// Notes that `heard` is the session's last heartbeat. True: it has been so for longer than
  /// `lease`.
  bool silent(SessionId session, std::uint64_t heard, Nanoseconds now, Nanoseconds lease)
      SL_EXCLUDES(m_);
  /// Forgets sessions that are not among these (sorted), which are all that live.
  void keep_only(const std::vector<SessionId>& living) SL_EXCLUDES(m_);

 private:
  struct Seen {
    std::uint64_t heard = 0;
    Nanoseconds since{0};
  };
  Mutex m_;
  std::unordered_map<SessionId, Seen> seen_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::meta
