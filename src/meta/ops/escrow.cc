// escrow: a session sets bytes of the quota aside, or gives some back. When there are none left,
// the others are asked, by their heartbeats, to give back what they do not need.
#include "meta/escrow.h"

#include <algorithm>

#include "meta/messages.h"
#include "meta/ops/ops.h"

namespace starlane::meta {
namespace {

/// Moves bytes between the branch and the session's lane: positive to the session.
void move_bytes(Change& change, std::int64_t bytes) {
  if (bytes == 0) return;
  const BranchId branch = change.branch();
  change.charge(bytes, 0);
  change.t.add_limited(
      accumulator_key(branch, InodeId{}, What::escrow, change.access.session.value), -bytes, 0);
  change.t.add(accumulator_key(branch, InodeId{}, What::escrow_all), bytes);
}

Status run_escrow(Change& change, const pb::EscrowRequest& request, pb::EscrowReply* reply) {
  reply->set_limited(change.head.quota_bytes != 0);
  std::uint64_t has = SL_TRY(read_escrow(change.t, change.branch(), change.access.session));
  const std::uint64_t before = has;
  has -= std::min(has, request.returned());
  if (reply->limited() && request.wanted() > has) {
    const Usage usage = SL_TRY(read_usage(change.t, change.branch()));
    const std::uint64_t used = usage.live_bytes + usage.escrow_bytes - (before - has);
    const std::uint64_t free = change.head.quota_bytes - std::min(change.head.quota_bytes, used);
    const std::uint64_t given = std::min(request.wanted() - has, free);
    if (given < request.wanted() - has)
      change.context.escrow_calls.call(change.branch(), change.access.session, change.now_ns);
    has += given;
  }
  move_bytes(change, static_cast<std::int64_t>(has) - static_cast<std::int64_t>(before));
  reply->set_escrow(has);
  return {};
}

}  // namespace

// Two that take the last bytes at once: the later one finds less when it looks again.
Status op_escrow(Context& context, const Call&, const pb::EscrowRequest& request,
                 pb::EscrowReply* reply) {
  constexpr int kTries = 4;
  const Access access = access_of(request.on());
  if (!access.session) return {Errc::invalid, "bytes are set aside for a session only"};
  Status done;
  for (int i = 0; i < kTries; ++i) {
    done = change_branch(context, access, number_of(Method::escrow), {}, reply,
                         [&](Change& change, Rows&) { return run_escrow(change, request, reply); });
    if (done.code() != Errc::quota) return done;
  }
  return done;
}

}  // namespace starlane::meta
