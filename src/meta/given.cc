#include "meta/given.h"

#include "meta/acl.h"
#include "meta/messages.h"
#include "meta/protection.h"

namespace starlane::meta {
namespace {

void set_owner_and_mode(const pb::SetAttributesRequest& request, InodeRow& row) {
  const bool owner = request.has_uid() || request.has_gid();
  const bool truncated = request.has_length() && request.caller().uid() != 0;
  if (request.has_uid()) row.uid = request.uid();
  if (request.has_gid()) row.gid = request.gid();
  if (owner || truncated || request.kill_privileges()) kill_privileges(row);
  if (request.has_mode()) row.mode = (row.mode & kTypeMask) | (request.mode() & 07777);
}

/// chmod of a file with an access list: the list follows.
Status change_acl(Change& change, const Node& node) {
  if ((node.row.flags & kHasXattrs) == 0) return {};
  const std::string key = xattr_key(change.branch(), node.inode, kAccessAcl);
  const std::optional<kv::Row> row = SL_TRY(change.t.get(key));
  if (!row) return {};  // one that is put meanwhile changes the inode's row
  XattrRow attribute = SL_TRY(XattrRow::decode(row->value));
  Acl acl = SL_TRY(Acl::decode(attribute.value));
  acl.change_permissions(node.row.mode & 0777);
  attribute = {change.header(), acl.encode()};
  change.t.expect(key, row->version);
  change.t.put(key, attribute.encode());
  return {};
}

/// A directory's times are accumulators of a generation: setting them begins a new one.
Status set_times(Change& change, const pb::SetAttributesRequest& request, Node& node) {
  if (request.atime_now()) {
    node.row.atime = change.now;
  } else if (request.has_atime()) {
    node.row.atime = SL_TRY(time_of(request.atime()));
  }
  if (!request.mtime_now() && !request.has_mtime()) return {};
  node.row.mtime = request.mtime_now() ? change.now : SL_TRY(time_of(request.mtime()));
  if (!node.row.is_directory()) return {};
  const DirectoryTotals totals =
      SL_TRY(read_totals(change.t, change.branch(), node.inode, node.row));
  touch_ctime(node.row, from_ns(totals.changed_ns));
  change.t.clear(
      accumulator_key(change.branch(), node.inode, What::changed, node.row.time_generation));
  node.row.time_generation += 1;
  return {};
}

}  // namespace

/// Bits that a write takes away are no change that anybody asked for.
Status may_be_given(const pb::SetAttributesRequest& request, const InodeRow& row) {
  const bool given_times = (request.has_atime() && !request.atime_now()) ||
                           (request.has_mtime() && !request.mtime_now());
  const bool given = request.has_mode() || request.has_uid() || request.has_gid() ||
                     request.has_length() || given_times;
  if (given) return may_change(row);
  if (request.atime_now() || request.mtime_now()) return may_touch(row);
  return {};
}

Status give(Change& change, const pb::SetAttributesRequest& request, Node& node) {
  set_owner_and_mode(request, node.row);
  if (request.has_mode()) SL_TRY(change_acl(change, node));
  return set_times(change, request, node);
}

}  // namespace starlane::meta
