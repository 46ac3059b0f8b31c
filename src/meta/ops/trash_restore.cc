// trash_restore: something from the trash gets its name back, or another one. A directory comes
// back empty: what was in it is in the trash by itself, and follows.
#include "meta/messages.h"
#include "meta/ops/ops.h"
#include "meta/protection.h"
#include "meta/trash.h"

namespace starlane::meta {
namespace {

Status give_back(Change& change, const pb::TrashRestoreRequest& request, const Rows& rows,
                 pb::NewEntry* reply) {
  if (!rows[0]) return {Errc::not_found, "this is not in the trash any more"};
  const Trashed trashed = SL_TRY(trashed_of(*rows[0]));
  Node node = SL_TRY(node_of(trashed.key.inode, rows[1]));
  if (node.row.nlink != 0) return {Errc::corrupt, "a file with names is listed in the trash"};
  const InodeId parent = request.parent() != 0 ? InodeId{request.parent()} : node.row.parent;
  const std::string name = request.name().empty() ? trashed.row.name : request.name();
  const std::string entry = entry_key(change.branch(), parent, name);
  const Rows place = SL_TRY(change.t.get_many({inode_key(change.branch(), parent), entry}));
  const InodeRow parent_row = SL_TRY(need_directory(place[0]));
  if (place[1]) return {Errc::exists, "the name is taken"};
  SL_TRY(may_gain_entry(parent_row));

  take_from_trash(change, trashed);
  SL_TRY(drop_pins(change, node.inode));
  node.row.nlink = 1;
  node.row.parent = parent;
  // The kernel's object of a removed directory stays dead: another generation is another object.
  if (node.row.is_directory()) node.row.generation += 1;
  touch_ctime(node.row, change.now);
  put_node(change, node);
  change.t.expect(entry, kv::kAbsent);
  const auto type = static_cast<std::uint8_t>(node.row.mode >> 12);
  change.t.put(entry, EntryRow{change.header(), node.inode, type}.encode());
  change_directory(change, parent, parent_row, {1, node.row.is_directory() ? 1 : 0});
  change.charge(static_cast<std::int64_t>(node.row.bytes), 1);
  return read_attributes(change.t, change.branch(), node.inode, node.row,
                         reply->mutable_attributes());
}

}  // namespace

Status op_trash_restore(Context& context, const Call&, const pb::TrashRestoreRequest& request,
                        pb::NewEntry* reply) {
  if (!request.name().empty()) SL_TRY(check_name(request.name()));
  const Access access = access_of(request.on());
  const InodeId inode{request.item().inode()};
  const std::vector<std::string> keys = {
      trashed_key(access.branch, request.item().deleted_ns(), inode),
      inode_key(access.branch, inode)};
  return change_branch(
      context, access, number_of(Method::trash_restore), keys, reply,
      [&](Change& change, Rows& rows) { return give_back(change, request, rows, reply); });
}

}  // namespace starlane::meta
