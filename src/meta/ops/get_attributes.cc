#include "meta/messages.h"
#include "meta/ops/ops.h"

namespace starlane::meta {

Status op_get_attributes(Context& context, const Call&, const pb::NodeRequest& request,
                         pb::Attributes* reply) {
  const BranchId branch{request.on().branch()};
  const InodeId inode{request.inode()};
  return context.read([&](kv::Transaction& t) -> Status {
    const std::optional<kv::Row> found = SL_TRY(t.get(inode_key(branch, inode)));
    const InodeRow row = SL_TRY(need<InodeRow>(found, "file or directory"));
    return read_attributes(t, branch, inode, row, reply);
  });
}

}  // namespace starlane::meta
