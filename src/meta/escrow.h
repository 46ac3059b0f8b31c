// Bytes of a volume's quota that are set aside for one session, so that a write may be promised
// room before it is committed. They count as used by the branch (What::bytes) from then on, which
// is all that the limit looks at; What::escrow has them by session, negative, so that a session can
// never use more than it has; What::escrow_all is their sum. Live bytes are the first less the
// last. Inside one transaction of the caller.
#pragma once
#include "meta/context.h"

namespace starlane::meta {

struct Usage {
  std::uint64_t live_bytes = 0;
  std::uint64_t escrow_bytes = 0;
  std::uint64_t inodes = 0;
};
/// Of what has a name in the branch.
Result<Usage> read_usage(kv::Transaction& t, BranchId branch);

/// What the session has.
Result<std::uint64_t> read_escrow(kv::Transaction& t, BranchId branch, SessionId session);

/// charge() of the bytes of contents, of which as many as it has come from the session's escrow:
/// how many. The commit fails with `quota` as well when another change of the session has used them
/// meanwhile: run it again.
Result<std::uint64_t> charge_from_escrow(Change& change, std::int64_t bytes);

/// The session's escrow goes back to the branch, all that it has.
Status return_escrow(kv::Transaction& t, BranchId branch, SessionId session);

}  // namespace starlane::meta
