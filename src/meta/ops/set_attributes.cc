// set_attributes: chmod, chown, utimens, truncate, chattr.
#include "meta/given.h"
#include "meta/messages.h"
#include "meta/ops/ops.h"
#include "meta/truncate.h"

namespace starlane::meta {
namespace {

/// Who may is the kernel's to say (CAP_LINUX_IMMUTABLE).
Status set_flags(const pb::SetAttributesRequest& request, InodeRow& row) {
  if (!row.is_regular() && !row.is_directory())
    return {Errc::unsupported, "only files and directories have flags"};
  row.flags = (row.flags & ~(kImmutable | kAppendOnly)) | request.flags();
  return {};
}

Status apply(Change& change, const pb::SetAttributesRequest& request, const Rows& rows,
             bool* too_long, pb::Attributes* reply) {
  if (!rows[0]) return {Errc::not_found, "no such file or directory"};
  Node node = SL_TRY(node_of(InodeId{request.inode()}, rows[0]));
  SL_TRY(may_be_given(request, node.row));
  if (request.has_flags()) SL_TRY(set_flags(request, node.row));
  if (request.has_length()) SL_TRY(set_length(change, node, request.length(), too_long));
  SL_TRY(give(change, request, node));
  touch_ctime(node.row, change.now);
  if (request.has_ctime()) node.row.ctime = SL_TRY(time_of(request.ctime()));
  put_node(change, node);
  return read_attributes(change.t, change.branch(), node.inode, node.row, reply);
}

}  // namespace

Status op_set_attributes(Context& context, const Call&, const pb::SetAttributesRequest& request,
                         pb::Attributes* reply) {
  const Access access = access_of(request.on());
  const InodeId inode{request.inode()};
  if (request.has_flags() && (request.flags() & ~(kImmutable | kAppendOnly)) != 0)
    return {Errc::unsupported, "the flags of a file are immutable and append-only"};
  const std::vector<std::string> keys = {inode_key(access.branch, inode)};
  for (;;) {
    bool too_long = false;
    const Status done = change_branch(
        context, access, number_of(Method::set_attributes), keys, reply,
        [&](Change& change, Rows& rows) { return apply(change, request, rows, &too_long, reply); });
    if (done.code() != Errc::busy || !too_long) return done;
    SL_TRY(shorten_in_steps(context, access, inode, request.length()));
  }
}

}  // namespace starlane::meta
