// The life of a session: what ends one, whoever finds that it is over. Any thread.
#pragma once
#include "meta/context.h"
#include "meta/members/member_rows.h"

namespace starlane::meta {

inline constexpr std::size_t kMaxSessions = 16'384;

/// Ends the session in `t`: every write of it that is not committed yet fails, its attachments go,
/// and upkeep finds what it reserved and held. Nothing happens if it is over already.
Status end_session(kv::Transaction& t, SessionId session);

/// Ends it if this server has seen no heartbeat of it for the lease time. True: it is over.
Result<bool> end_if_silent(Context& context, SessionId session);

/// When a session was last heard of, ns since 1970.
Result<std::uint64_t> last_heard(kv::Transaction& t, SessionId session);

}  // namespace starlane::meta
