// What a session leaves behind when it ends, removed in bounded steps. Any thread.
#pragma once
#include "meta/context.h"

namespace starlane::pb {
class HousekeepingReply;
}

namespace starlane::meta {

/// Removes some of what the dead session reserved, held and remembered, adding to the figures of
/// `reply`. True: nothing is left, and its row is gone too.
Result<bool> clear_session_step(Context& context, SessionId session, pb::HousekeepingReply* reply);

/// Slices of a reservation that no file has become dead references, whose blocks, if there are any,
/// the keeper removes; block servers refuse what is put late. The row goes. How many slices it
/// were.
Result<std::uint64_t> bury_reserved(Change& change, const kv::Row& row);

/// The same of all that the session has reserved in the branch: when the process that did is gone,
/// another has taken its attachment over, and nothing of the first can be committed any more.
Status bury_reserved(Context& context, BranchId branch, SessionId session);

}  // namespace starlane::meta
