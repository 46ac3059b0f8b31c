#include "meta/links.h"

#include "common/bytes.h"
#include "meta/contents.h"
#include "meta/trash.h"

namespace starlane::meta {
namespace {

constexpr std::size_t kMaxPins = 65'536;     // a pin is a session that has the file open
constexpr std::size_t kMaxXattrs = 100'000;  // more than the limit on the list's size lets in

/// Takes one name from a file that has several: its N row goes, or another name becomes the first.
Status forget_name(Change& change, Node& node, const Name& name) {
  const std::string key = name_key(change.branch(), node.inode, name.parent, name.name);
  if (SL_TRY(change.t.get(key))) {
    change.t.del(key);
    return {};
  }
  const KeyRange range = names_of(change.branch(), node.inode);
  const std::vector<kv::Row> others = SL_TRY(change.t.scan({range.first, range.last, 1}));
  if (others.empty()) return {Errc::corrupt, "a file with several links has no row for them"};
  KeyReader reader(others[0].key);
  reader.u64();  // the inode
  node.row.parent = InodeId{reader.u64()};
  if (!reader.ok()) return damaged("further name");
  change.t.del(others[0].key);
  return {};
}

/// No other session can have it open: it may be freed at once.
bool alone(const Change& change) {
  if (!change.access.session) return change.head.attachments == 0;
  return change.head.only_session == change.access.session;
}

void leave_unlinked(Change& change, const Node& node, const Name& name, const Drop& drop) {
  const std::uint64_t lease =
      static_cast<std::uint64_t>(Nanoseconds(change.context.options.lease).count());
  const std::uint64_t ready = change.now_ns + (alone(change) ? 0 : 2 * lease);
  if (drop.deleted && is_kept(change, node.row)) {
    put_in_trash(change, node, {name.name, ready});
  } else {
    UnlinkedRow row{change.header(), change.access.session};
    change.t.put(unlinked_key(change.branch(), ready, node.inode), row.encode());
  }
  if (drop.held && change.access.session) {
    const std::string pin = pin_key(change.branch(), node.inode, change.access.session);
    change.t.put(pin, MarkRow{change.header()}.encode());
  }
}

/// Files may be open here, or an open may be under way beside the unlink; what never is opened
/// through us goes with its last name: no row of U, no later step.
bool may_go_at_once(const Change& change, const Node& node, const Drop& drop) {
  if (drop.deleted && is_kept(change, node.row)) return false;
  return !node.row.is_regular() && (node.row.flags & kHasXattrs) == 0;
}

Status free_at_once(Change& change, const Node& node) {
  const std::string key = inode_key(change.branch(), node.inode);
  change.t.expect(key, node.version);
  change.t.del(key);
  if (node.row.length == 0) return {};
  const std::optional<kv::Row> chunk =
      SL_TRY(change.t.get(slices_key(change.branch(), node.inode, 0)));
  if (!chunk) return {};
  return bury_chunk(change, node.inode, node.row.version, *chunk);
}

}  // namespace

Result<Node> node_of(InodeId inode, const std::optional<kv::Row>& row) {
  if (!row) return {Errc::corrupt, "a directory entry names a file that does not exist"};
  return Node{inode, SL_TRY(InodeRow::decode(row->value)), row->version};
}

void put_node(Change& change, const Node& node) {
  const std::string key = inode_key(change.branch(), node.inode);
  InodeRow row = node.row;
  row.header = change.header();
  change.t.expect(key, node.version);
  change.t.put(key, row.encode());
}

Status drop_name(Change& change, Node& node, const Name& name, const Drop& drop) {
  if (node.row.nlink == 0) return {Errc::corrupt, "a directory entry names a file without links"};
  if (node.row.nlink > 1) SL_TRY(forget_name(change, node, name));
  node.row.nlink -= 1;
  touch_ctime(node.row, change.now);
  if (node.row.nlink == 0) {
    change.charge(-static_cast<std::int64_t>(node.row.bytes), -1);
    if (may_go_at_once(change, node, drop)) return free_at_once(change, node);
    leave_unlinked(change, node, name, drop);
  }
  put_node(change, node);
  return {};
}

void put_unnamed(Change& change, const Node& node) {
  const std::string listed = unlinked_key(change.branch(), to_ns(node.row.btime), node.inode);
  change.t.put(listed, UnlinkedRow{change.header(), change.access.session}.encode());
  if (change.access.session) {
    const std::string pin = pin_key(change.branch(), node.inode, change.access.session);
    change.t.put(pin, MarkRow{change.header()}.encode());
  }
  change.t.put(inode_key(change.branch(), node.inode), node.row.encode());
}

Status give_first_name(Change& change, Node& node, InodeId parent) {
  const std::string listed = unlinked_key(change.branch(), to_ns(node.row.btime), node.inode);
  const std::optional<kv::Row> row = SL_TRY(change.t.get(listed));
  if (!row || (node.row.flags & kLinkable) == 0) return {Errc::not_found, "the file was unlinked"};
  change.t.expect(listed, row->version);
  change.t.del(listed);
  SL_TRY(drop_pins(change, node.inode));
  node.row.flags &= ~kLinkable;
  node.row.nlink = 1;
  node.row.parent = parent;
  change.charge(static_cast<std::int64_t>(node.row.bytes), 1);
  return {};
}

Status drop_directory(Change& change, Node& node, const Name& name, const Drop& drop) {
  const DirectoryTotals totals =
      SL_TRY(read_totals(change.t, change.branch(), node.inode, node.row));
  if (totals.entries != 0) return {Errc::not_empty, "the directory is not empty"};
  const KeyRange entries = entries_of(change.branch(), node.inode);
  const std::string key = inode_key(change.branch(), node.inode);
  change.t.expect_empty(entries.first, entries.last);
  change.charge(0, -1);
  node.row.nlink = 0;
  touch_ctime(node.row, change.now);
  if (drop.deleted && is_kept(change, node.row)) {
    put_in_trash(change, node, {name.name, change.now_ns});
    put_node(change, node);
    return {};
  }
  change.t.expect(key, node.version);
  change.t.del(key);
  clear_directory(change, node.inode, node.row);
  return drop_xattrs(change, node.inode, node.row);
}

Status move_name(Change& change, Node& node, const Name& from, const Name& to) {
  if (node.row.is_directory() || node.row.nlink == 1) {
    node.row.parent = to.parent;
    return {};
  }
  const std::string old_key = name_key(change.branch(), node.inode, from.parent, from.name);
  if (!SL_TRY(change.t.get(old_key))) {
    node.row.parent = to.parent;
    return {};
  }
  change.t.del(old_key);
  change.t.put(name_key(change.branch(), node.inode, to.parent, to.name),
               MarkRow{change.header()}.encode());
  return {};
}

Status drop_pins(Change& change, InodeId inode) {
  const KeyRange range = pins_of(change.branch(), inode);
  const std::vector<kv::Row> pins = SL_TRY(change.t.scan({range.first, range.last, kMaxPins}));
  for (const kv::Row& pin : pins) change.t.del(pin.key);
  return {};
}

Status drop_xattrs(Change& change, InodeId inode, const InodeRow& row) {
  if ((row.flags & kHasXattrs) == 0) return {};
  const KeyRange range = xattrs_of(change.branch(), inode);
  const std::vector<kv::Row> rows = SL_TRY(change.t.scan({range.first, range.last, kMaxXattrs}));
  for (const kv::Row& one : rows) change.t.del(one.key);
  return {};
}

}  // namespace starlane::meta
