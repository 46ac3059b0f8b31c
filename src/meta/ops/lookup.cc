#include "meta/messages.h"
#include "meta/ops/ops.h"

namespace starlane::meta {

Status op_lookup(Context& context, const Call&, const pb::LookupRequest& request,
                 pb::NewEntry* reply) {
  const BranchId branch{request.on().branch()};
  const InodeId parent{request.parent()};
  SL_TRY(check_name(request.name()));
  const std::vector<std::string> keys = {inode_key(branch, parent),
                                         entry_key(branch, parent, request.name())};
  return context.read([&](kv::Transaction& t) -> Status {
    const Rows rows = SL_TRY(t.get_many(keys));
    SL_TRY(need_directory(rows[0]));
    const EntryRow entry = SL_TRY(need<EntryRow>(rows[1], "file or directory"));
    const std::optional<kv::Row> found = SL_TRY(t.get(inode_key(branch, entry.inode)));
    const InodeRow row = SL_TRY(need<InodeRow>(found, "file or directory"));
    return read_attributes(t, branch, entry.inode, row, reply->mutable_attributes());
  });
}

}  // namespace starlane::meta
