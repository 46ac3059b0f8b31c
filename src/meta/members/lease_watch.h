// Whose heartbeats stand still: each server watches the engine's record of them change on its own
// boot clock, so that neither a jump of wall time, nor a difference between servers, nor a restart
// ends a session that lives. A session that is to end with its process, on this host, is over when
// that is: nobody waits for its lease. Any thread.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "common/clock.h"
#include "common/ids.h"
#include "common/mutex.h"
#include "common/process_id.h"

namespace starlane::meta {

class LeaseWatch {
 public:
  /// The session is over with this process.
  void ends_with(SessionId session, const ProcessId& process) SL_EXCLUDES(m_);
  /// Notes that `heard` is the session's last heartbeat. True: it has been so for longer than
  /// `lease`, or its process is over.
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
  std::unordered_map<SessionId, ProcessId> processes_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::meta
