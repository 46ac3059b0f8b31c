// stat_fs: what a volume holds and may hold, and what the targets have; without a branch the latter
// alone.
#include "meta/escrow.h"
#include "meta/messages.h"
#include "meta/ops/ops.h"

namespace starlane::meta {

namespace {

void put_capacity(const Context& context, pb::StatFsReply* reply) {
  const Capacity::Space space = context.capacity.sum();
  reply->set_total_bytes(space.total_bytes);
  reply->set_free_bytes(space.free_bytes);
}

}  // namespace

Status op_stat_fs(Context& context, const Call&, const pb::NodeRequest& request,
                  pb::StatFsReply* reply) {
  const BranchId branch{request.on().branch()};
  put_capacity(context, reply);
  if (!branch) return {};
  return context.read([&](kv::Transaction& t) -> Status {
    const HeadRow head = SL_TRY(read_head(t, branch));
    const Usage used = SL_TRY(read_usage(t, branch));
    reply->set_live_bytes(used.live_bytes);
    reply->set_inodes(used.inodes);
    reply->set_quota_bytes(head.quota_bytes);
    reply->set_quota_inodes(head.quota_inodes);
    return {};
  });
}

}  // namespace starlane::meta
