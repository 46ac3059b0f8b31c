// rename, with NOREPLACE and EXCHANGE. A directory that gets another parent guards every ancestor
// of its new place, so that two renames cannot tie a cycle that hangs in the air.
#include "meta/links.h"
#include "meta/messages.h"
#include "meta/ops/ops.h"

namespace starlane::meta {
namespace {

constexpr std::uint32_t kNoReplace = 1;
constexpr std::uint32_t kExchange = 2;
constexpr int kMaxDepth = 1 << 16;

/// One of the two names.
struct Side {
  Name name;
  InodeRow parent_row;
  std::string key;  // of the entry
  kv::Version version = kv::kAbsent;
  std::optional<Node> node;
  std::int64_t directories() const { return node && node->row.is_directory() ? 1 : 0; }
};

/// Fails if `moving` is `place` or above it; guards all that is above.
Status guard_ancestors(Change& change, InodeId moving, InodeId place, const InodeRow& place_row) {
  InodeId at = place;
  InodeId above = place_row.parent;
  for (int depth = 0; depth < kMaxDepth; ++depth) {
    if (at == moving) return {Errc::invalid, "a directory cannot move into itself"};
    change.t.guard(inode_key(change.branch(), at));
    if (at == kRootInode) return {};
    at = above;
    const std::optional<kv::Row> row = SL_TRY(change.t.get(inode_key(change.branch(), at)));
    above = SL_TRY(need_directory(row)).parent;
  }
  return {Errc::corrupt, "a directory is not below the root"};
}

void put_entry_for(Change& change, const Side& place, const Node& node) {
  EntryRow entry{change.header(), node.inode, static_cast<std::uint8_t>(node.row.mode >> 12)};
  change.t.expect(place.key, place.version);
  change.t.put(place.key, entry.encode());
}

Status move_node(Change& change, Side& from, const Side& to) {
  SL_TRY(move_name(change, *from.node, from.name, to.name));
  touch_ctime(from.node->row, change.now);
  put_node(change, *from.node);
  return {};
}

void count_both(Change& change, const Side& from, const Side& to, const EntryDelta& left,
                const EntryDelta& right) {
  if (from.name.parent == to.name.parent) {
    change_directory(change, from.name.parent, from.parent_row,
                     {left.entries + right.entries, left.subdirectories + right.subdirectories});
    return;
  }
  change_directory(change, from.name.parent, from.parent_row, left);
  change_directory(change, to.name.parent, to.parent_row, right);
}

Status exchange(Change& change, Side& from, Side& to) {
  if (from.name.parent != to.name.parent) {
    if (from.directories()) {
      SL_TRY(guard_ancestors(change, from.node->inode, to.name.parent, to.parent_row));
    }
    if (to.directories()) {
      SL_TRY(guard_ancestors(change, to.node->inode, from.name.parent, from.parent_row));
    }
  }
  SL_TRY(move_node(change, from, to));
  SL_TRY(move_node(change, to, from));
  put_entry_for(change, to, *from.node);
  put_entry_for(change, from, *to.node);
  const std::int64_t gained = to.directories() - from.directories();
  count_both(change, from, to, {0, gained}, {0, -gained});
  return {};
}

/// What `to` named goes.
Status replace(Change& change, const Side& from, Side& to, bool held) {
  if (from.directories() && !to.directories())
    return {Errc::not_directory, "the new name is a file's"};
  if (!from.directories() && to.directories())
    return {Errc::is_directory, "the new name is a directory's"};
  if (!to.directories()) return drop_name(change, *to.node, to.name, held);
  SL_TRY(drop_directory(change, *to.node));
  to.node->row.nlink = 0;
  return {};
}

Status move(Change& change, Side& from, Side& to, bool held) {
  const std::int64_t replaced = to.node ? 1 : 0;
  const std::int64_t replaced_directory = to.directories();
  if (to.node) SL_TRY(replace(change, from, to, held));
  if (from.directories() && from.name.parent != to.name.parent) {
    SL_TRY(guard_ancestors(change, from.node->inode, to.name.parent, to.parent_row));
  }
  SL_TRY(move_node(change, from, to));
  put_entry_for(change, to, *from.node);
  change.t.expect(from.key, from.version);
  change.t.del(from.key);
  count_both(change, from, to, {-1, -from.directories()},
             {1 - replaced, from.directories() - replaced_directory});
  return {};
}

/// The names and what they name.
Status read_sides(Change& change, const Rows& rows, Side& from, Side& to) {
  from.parent_row = SL_TRY(need_directory(rows[0]));
  to.parent_row = SL_TRY(need_directory(rows[1]));
  const EntryRow entry = SL_TRY(need<EntryRow>(rows[2], "file or directory"));
  from.key = rows[2]->key;
  from.version = rows[2]->version;
  to.key = entry_key(change.branch(), to.name.parent, to.name.name);
  std::vector<std::string> keys = {inode_key(change.branch(), entry.inode)};
  EntryRow other;
  if (rows[3]) {
    other = SL_TRY(EntryRow::decode(rows[3]->value));
    to.version = rows[3]->version;
    keys.push_back(inode_key(change.branch(), other.inode));
  }
  const Rows nodes = SL_TRY(change.t.get_many(keys));
  from.node = SL_TRY(node_of(entry.inode, nodes[0]));
  if (rows[3]) to.node = SL_TRY(node_of(other.inode, nodes[1]));
  return {};
}

Status run_rename(Change& change, const pb::RenameRequest& request, const Rows& rows,
                  pb::RenameReply* reply) {
  Side from{{InodeId{request.parent()}, request.name()}, {}, {}, kv::kAbsent, std::nullopt};
  Side to{{InodeId{request.new_parent()}, request.new_name()}, {}, {}, kv::kAbsent, std::nullopt};
  SL_TRY(read_sides(change, rows, from, to));
  if (to.node && (request.flags() & kNoReplace)) return {Errc::exists, "the new name is taken"};
  if (!to.node && (request.flags() & kExchange))
    return {Errc::not_found, "nothing to exchange with"};
  const bool same = to.node && to.node->inode == from.node->inode;
  if (!same && (request.flags() & kExchange)) {
    SL_TRY(exchange(change, from, to));
  } else if (!same) {
    SL_TRY(move(change, from, to, request.target_held()));
  }
  SL_TRY(read_attributes(change.t, change.branch(), from.node->inode, from.node->row,
                         reply->mutable_moved()));
  if (same || !to.node) return {};
  SL_TRY(read_attributes(change.t, change.branch(), to.node->inode, to.node->row,
                         reply->mutable_replaced()));
  if (to.node->row.nlink == 0) reply->mutable_replaced()->set_nlink(0);
  return {};
}

}  // namespace

Status op_rename(Context& context, const Call&, const pb::RenameRequest& request,
                 pb::RenameReply* reply) {
  SL_TRY(check_name(request.name()));
  SL_TRY(check_name(request.new_name()));
  if (request.flags() & ~(kNoReplace | kExchange))
    return {Errc::invalid, "rename knows NOREPLACE and EXCHANGE"};
  if (request.flags() == (kNoReplace | kExchange))
    return {Errc::invalid, "NOREPLACE and EXCHANGE exclude each other"};
  const Access access = access_of(request.on());
  const InodeId parent{request.parent()};
  const InodeId new_parent{request.new_parent()};
  const std::vector<std::string> keys = {inode_key(access.branch, parent),
                                         inode_key(access.branch, new_parent),
                                         entry_key(access.branch, parent, request.name()),
                                         entry_key(access.branch, new_parent, request.new_name())};
  return change_branch(
      context, access, number_of(Method::rename), keys, reply,
      [&](Change& change, Rows& rows) { return run_rename(change, request, rows, reply); });
}

}  // namespace starlane::meta
