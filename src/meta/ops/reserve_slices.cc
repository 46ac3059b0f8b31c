// reserve_slices: ids for what is about to be put. Durable before a block can be: after a power cut
// each block on a target is in a file, or its reservation says that it is not.
#include "meta/messages.h"
#include "meta/ops/ops.h"

namespace starlane::meta {

Status op_reserve_slices(Context& context, const Call& call,
                         const pb::ReserveSlicesRequest& request, pb::ReserveSlicesReply* reply) {
  if (request.count() == 0 || request.count() > 64)
    return {Errc::invalid, "1 to 64 slices are reserved at a time"};
  const SliceId first = SL_TRY(context.new_slices(request.count()));
  const Access access{BranchId{request.branch()}, SessionId{request.session()}, 0,
                      call.attachment_epoch};
  const auto reserve = [&](Change& change, Rows&) -> Status {
    const std::string key = reserved_key(access.branch, access.session, first.value);
    ReservedRow row{change.header(), request.count(), 0, call.map_epoch};
    change.t.expect(key, kv::kAbsent);
    change.t.put(key, row.encode());
    reply->set_batch(first.value);
    reply->set_first(first.value);
    reply->set_count(request.count());
    reply->set_map_epoch(call.map_epoch);
    return {};
  };
  return change_branch(context, access, number_of(Method::reserve_slices), {}, reply, reserve,
                       kv::Durability::durable);
}

}  // namespace starlane::meta
