#include "meta/links.h"
#include "meta/messages.h"
#include "meta/ops/ops.h"
#include "meta/protection.h"

namespace starlane::meta {
namespace {

Status add_link(Change& change, const pb::LinkRequest& request, const Rows& rows,
                pb::NewEntry* reply) {
  const InodeId parent{request.parent()};
  const InodeRow parent_row = SL_TRY(need_directory(rows[0]));
  if (rows[1]) return {Errc::exists, "the name is taken"};
  if (!rows[2]) return {Errc::not_found, "no such file"};
  Node node = SL_TRY(node_of(InodeId{request.inode()}, rows[2]));
  if (node.row.is_directory()) return {Errc::not_permitted, "directories have one name"};
  SL_TRY(may_gain_entry(parent_row));
  SL_TRY(may_change(node.row));
  if (node.row.nlink >= change.context.options.max_links)
    return {Errc::too_many_links, "the file has too many names"};
  const std::string name = entry_key(change.branch(), parent, request.name());
  change.t.expect(name, kv::kAbsent);
  EntryRow entry{change.header(), node.inode, static_cast<std::uint8_t>(node.row.mode >> 12)};
  change.t.put(name, entry.encode());
  if (node.row.nlink == 0) {
    SL_TRY(give_first_name(change, node, parent));
  } else {
    change.t.put(name_key(change.branch(), node.inode, parent, request.name()),
                 MarkRow{change.header()}.encode());
    node.row.nlink += 1;
  }
  change_directory(change, parent, parent_row, {1, 0});
  touch_ctime(node.row, change.now);
  put_node(change, node);
  put_attributes(node.inode, node.row, {}, reply->mutable_attributes());
  return {};
}

}  // namespace

Status op_link(Context& context, const Call&, const pb::LinkRequest& request, pb::NewEntry* reply) {
  SL_TRY(check_name(request.name()));
  const Access access = access_of(request.on());
  const InodeId parent{request.parent()};
  const std::vector<std::string> keys = {inode_key(access.branch, parent),
                                         entry_key(access.branch, parent, request.name()),
                                         inode_key(access.branch, InodeId{request.inode()})};
  return change_branch(
      context, access, number_of(Method::link), keys, reply,
      [&](Change& change, Rows& rows) { return add_link(change, request, rows, reply); });
}

}  // namespace starlane::meta
