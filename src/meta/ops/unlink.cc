// unlink and remove_directory.
#include "meta/links.h"
#include "meta/messages.h"
#include "meta/ops/ops.h"
#include "meta/protection.h"

namespace starlane::meta {
namespace {

Status check_type(const Node& node, bool directory) {
  if (directory && !node.row.is_directory()) return {Errc::not_directory, "not a directory"};
  if (!directory && node.row.is_directory()) return {Errc::is_directory, "a directory"};
  return {};
}

Status remove_name(Change& change, const pb::UnlinkRequest& request, const Rows& rows,
                   bool directory, pb::UnlinkReply* reply) {
  const InodeId parent{request.parent()};
  const InodeRow parent_row = SL_TRY(need_directory(rows[0]));
  const EntryRow entry = SL_TRY(need<EntryRow>(rows[1], "file or directory"));
  const std::optional<kv::Row> found =
      SL_TRY(change.t.get(inode_key(change.branch(), entry.inode)));
  Node node = SL_TRY(node_of(entry.inode, found));
  SL_TRY(check_type(node, directory));
  SL_TRY(may_lose_entry(parent_row, node.row));
  const Name name{parent, request.name()};
  const Drop drop{request.held(), true};
  SL_TRY(directory ? drop_directory(change, node, name, drop)
                   : drop_name(change, node, name, drop));
  change.t.expect(rows[1]->key, rows[1]->version);
  change.t.del(rows[1]->key);
  change_directory(change, parent, parent_row, {-1, directory ? -1 : 0});
  reply->set_inode(node.inode.value);
  put_attributes(node.inode, node.row, {}, reply->mutable_attributes());
  return {};
}

Status remove(Context& context, const pb::UnlinkRequest& request, bool directory,
              pb::UnlinkReply* reply) {
  SL_TRY(check_name(request.name()));
  const Access access = access_of(request.on());
  const InodeId parent{request.parent()};
  const Method method = directory ? Method::remove_directory : Method::unlink;
  const std::vector<std::string> keys = {inode_key(access.branch, parent),
                                         entry_key(access.branch, parent, request.name())};
  return change_branch(context, access, number_of(method), keys, reply,
                       [&](Change& change, Rows& rows) {
                         return remove_name(change, request, rows, directory, reply);
                       });
}

}  // namespace

Status op_unlink(Context& context, const Call&, const pb::UnlinkRequest& request,
                 pb::UnlinkReply* reply) {
  return remove(context, request, false, reply);
}

Status op_remove_directory(Context& context, const Call&, const pb::UnlinkRequest& request,
                           pb::UnlinkReply* reply) {
  return remove(context, request, true, reply);
}

}  // namespace starlane::meta
