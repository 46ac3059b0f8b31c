// rename, with NOREPLACE, EXCHANGE and WHITEOUT. A directory that gets another parent guards every
// ancestor of its new place, so that two renames cannot tie a cycle that hangs in the air.
#include "meta/links.h"
#include "meta/messages.h"
#include "meta/ops/ops.h"
#include "meta/protection.h"

namespace starlane::meta {
namespace {

constexpr std::uint32_t kNoReplace = 1;
constexpr std::uint32_t kExchange = 2;
constexpr std::uint32_t kWhiteout = 4;
constexpr std::uint32_t kWhiteoutMode = 0020000;  // a character device 0/0, for overlayfs
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

/// What a call needs beside its rows.
struct Asked {
  const pb::RenameRequest& request;
  InodeId whiteout;  // its inode, if one is asked for
};

/// What stays at the old name: nothing, or what hides the name in a lower layer.
void leave_behind(Change& change, const Side& from, const Asked& asked) {
  change.t.expect(from.key, from.version);
  if (!asked.whiteout) return change.t.del(from.key);
  const pb::Caller& caller = asked.request.caller();
  const InodeRow row = new_inode_row(change, from.name.parent, from.parent_row, kWhiteoutMode,
                                     caller.uid(), caller.gid());
  change.t.put(inode_key(change.branch(), asked.whiteout), row.encode());
  change.t.put(from.key, EntryRow{change.header(), asked.whiteout, kWhiteoutMode >> 12}.encode());
  change.charge(0, 1);
}

/// What `to` named goes.
Status replace(Change& change, const Side& from, Side& to, bool held) {
  if (from.directories() && !to.directories())
    return {Errc::not_directory, "the new name is a file's"};
  if (!from.directories() && to.directories())
    return {Errc::is_directory, "the new name is a directory's"};
  const Drop drop{held, false};
  return to.directories() ? drop_directory(change, *to.node, to.name, drop)
                          : drop_name(change, *to.node, to.name, drop);
}

Status move(Change& change, Side& from, Side& to, const Asked& asked) {
  const std::int64_t replaced = to.node ? 1 : 0;
  const std::int64_t replaced_directory = to.directories();
  if (to.node) SL_TRY(replace(change, from, to, asked.request.target_held()));
  if (from.directories() && from.name.parent != to.name.parent) {
    SL_TRY(guard_ancestors(change, from.node->inode, to.name.parent, to.parent_row));
  }
  SL_TRY(move_node(change, from, to));
  put_entry_for(change, to, *from.node);
  leave_behind(change, from, asked);
  count_both(change, from, to, {asked.whiteout ? 0 : -1, -from.directories()},
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

/// Both entries go or change; a free new name is gained.
Status check_flags(const Side& from, const Side& to) {
  SL_TRY(may_lose_entry(from.parent_row, from.node->row));
  return to.node ? may_lose_entry(to.parent_row, to.node->row) : may_gain_entry(to.parent_row);
}

Status run_rename(Change& change, const Asked& asked, const Rows& rows, pb::RenameReply* reply) {
  const pb::RenameRequest& request = asked.request;
  Side from{{InodeId{request.parent()}, request.name()}, {}, {}, kv::kAbsent, std::nullopt};
  Side to{{InodeId{request.new_parent()}, request.new_name()}, {}, {}, kv::kAbsent, std::nullopt};
  SL_TRY(read_sides(change, rows, from, to));
  if (to.node && (request.flags() & kNoReplace)) return {Errc::exists, "the new name is taken"};
  if (!to.node && (request.flags() & kExchange))
    return {Errc::not_found, "nothing to exchange with"};
  const bool same = to.node && to.node->inode == from.node->inode;
  SL_TRY(check_flags(from, to));
  if (!same && (request.flags() & kExchange)) {
    SL_TRY(exchange(change, from, to));
  } else if (!same) {
    SL_TRY(move(change, from, to, asked));
  }
  SL_TRY(read_attributes(change.t, change.branch(), from.node->inode, from.node->row,
                         reply->mutable_moved()));
  if (same || !to.node) return {};
  SL_TRY(read_attributes(change.t, change.branch(), to.node->inode, to.node->row,
                         reply->mutable_replaced()));
  return {};
}

}  // namespace

Status op_rename(Context& context, const Call&, const pb::RenameRequest& request,
                 pb::RenameReply* reply) {
  SL_TRY(check_name(request.name()));
  SL_TRY(check_name(request.new_name()));
  if (request.flags() & ~(kNoReplace | kExchange | kWhiteout))
    return {Errc::invalid, "rename knows NOREPLACE, EXCHANGE and WHITEOUT"};
  if ((request.flags() & kExchange) && request.flags() != kExchange)
    return {Errc::invalid, "EXCHANGE goes with neither NOREPLACE nor WHITEOUT"};
  const Access access = access_of(request.on());
  Asked asked{request, {}};
  if (request.flags() & kWhiteout) asked.whiteout = SL_TRY(context.new_inode(access.branch));
  const InodeId parent{request.parent()};
  const InodeId new_parent{request.new_parent()};
  const std::vector<std::string> keys = {inode_key(access.branch, parent),
                                         inode_key(access.branch, new_parent),
                                         entry_key(access.branch, parent, request.name()),
                                         entry_key(access.branch, new_parent, request.new_name())};
  return change_branch(
      context, access, number_of(Method::rename), keys, reply,
      [&](Change& change, Rows& rows) { return run_rename(change, asked, rows, reply); });
}

}  // namespace starlane::meta
