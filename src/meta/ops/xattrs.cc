// get_xattr, list_xattrs, set_xattr, remove_xattr.
#include "common/bytes.h"
#include "meta/acl.h"
#include "meta/links.h"
#include "meta/messages.h"
#include "meta/ops/ops.h"
#include "meta/protection.h"

namespace starlane::meta {
namespace {

constexpr std::size_t kMaxXattrName = 255;
constexpr std::size_t kMaxXattrValue = 64_KiB;
constexpr std::size_t kMaxXattrList = 64_KiB;  // names with their NULs, as the kernel has it
constexpr std::uint32_t kCreate = 1;
constexpr std::uint32_t kReplace = 2;

Status check_xattr_name(const std::string& name) {
  if (name.empty() || name.size() > kMaxXattrName) {
    return {Errc::range, "names of extended attributes have 1 to 255 bytes"};
  }
  if (name.find('\0') != name.npos) return {Errc::invalid, "a name holds a NUL"};
  return {};
}

Status no_such() { return {Errc::no_attribute, "no such extended attribute"}; }

Result<std::vector<kv::Row>> all_xattrs(kv::Transaction& t, BranchId branch, InodeId inode) {
  const KeyRange range = xattrs_of(branch, inode);
  return t.scan({range.first, range.last, kMaxXattrList});
}

std::string_view name_in(std::string_view key) {
  KeyReader reader(key);
  reader.u64();  // the inode
  return reader.rest();
}

/// A new name must fit into what listxattr can return.
Status check_list(Change& change, InodeId inode, const std::string& name) {
  std::size_t size = name.size() + 1;
  const std::vector<kv::Row> rows = SL_TRY(all_xattrs(change.t, change.branch(), inode));
  for (const kv::Row& row : rows) size += name_in(row.key).size() + 1;
  if (size > kMaxXattrList) return {Errc::no_space, "the file has too many extended attributes"};
  return {};
}

void drop_row(Change& change, const kv::Row& row) {
  change.t.expect(row.key, row.version);
  change.t.del(row.key);
}

/// An access list is the long form of the mode, which follows it. False: it says no more than that,
/// and is not kept.
Result<bool> take_acl(const pb::XattrRequest& request, InodeRow& file) {
  const bool access = request.name() == kAccessAcl;
  if (!access && request.name() != kDefaultAcl) return true;
  if (file.is_symlink()) return {Errc::unsupported, "a symbolic link has no access control list"};
  if (!access && !file.is_directory())
    return {Errc::access, "only a directory has a default access control list"};
  const Acl acl = SL_TRY(Acl::decode(request.value()));
  if (!access) return true;
  file.mode = (file.mode & ~0777u) | acl.permissions();
  if (request.kill_setgid()) file.mode &= ~kSetGid;
  return !acl.is_mode_only();
}

Status put_xattr(Change& change, const pb::XattrRequest& request, const Rows& rows) {
  if (!rows[0]) return {Errc::not_found, "no such file or directory"};
  Node node = SL_TRY(node_of(InodeId{request.inode()}, rows[0]));
  SL_TRY(may_change(node.row));
  if (rows[1] && (request.flags() & kCreate)) return {Errc::exists, "the attribute is there"};
  if (!rows[1] && (request.flags() & kReplace)) return no_such();
  if (!rows[1] && (node.row.flags & kHasXattrs))
    SL_TRY(check_list(change, node.inode, request.name()));
  const bool kept = SL_TRY(take_acl(request, node.row));
  if (kept) {
    const std::string key = xattr_key(change.branch(), node.inode, request.name());
    change.t.expect(key, rows[1] ? rows[1]->version : kv::kAbsent);
    change.t.put(key, XattrRow{change.header(), request.value()}.encode());
    node.row.flags |= kHasXattrs;
  } else if (rows[1]) {
    drop_row(change, *rows[1]);
  }
  touch_ctime(node.row, change.now);
  put_node(change, node);
  return {};
}

Status delete_xattr(Change& change, const pb::XattrRequest& request, const Rows& rows) {
  if (!rows[0]) return {Errc::not_found, "no such file or directory"};
  Node node = SL_TRY(node_of(InodeId{request.inode()}, rows[0]));
  SL_TRY(may_change(node.row));
  if (!rows[1]) return no_such();
  drop_row(change, *rows[1]);
  touch_ctime(node.row, change.now);
  put_node(change, node);
  return {};
}

}  // namespace

Status op_get_xattr(Context& context, const Call&, const pb::XattrRequest& request,
                    pb::XattrReply* reply) {
  SL_TRY(check_xattr_name(request.name()));
  const BranchId branch{request.on().branch()};
  const InodeId inode{request.inode()};
  const std::vector<std::string> keys = {inode_key(branch, inode),
                                         xattr_key(branch, inode, request.name())};
  return context.read([&](kv::Transaction& t) -> Status {
    const Rows rows = SL_TRY(t.get_many(keys));
    if (!rows[0]) return {Errc::not_found, "no such file or directory"};
    if (!rows[1]) return no_such();
    XattrRow row = SL_TRY(XattrRow::decode(rows[1]->value));
    reply->set_value(std::move(row.value));
    return {};
  });
}

Status op_list_xattrs(Context& context, const Call&, const pb::NodeRequest& request,
                      pb::XattrReply* reply) {
  const BranchId branch{request.on().branch()};
  const InodeId inode{request.inode()};
  return context.read([&](kv::Transaction& t) -> Status {
    reply->Clear();
    const std::optional<kv::Row> found = SL_TRY(t.get(inode_key(branch, inode)));
    const InodeRow row = SL_TRY(need<InodeRow>(found, "file or directory"));
    if ((row.flags & kHasXattrs) == 0) return {};
    const std::vector<kv::Row> rows = SL_TRY(all_xattrs(t, branch, inode));
    for (const kv::Row& one : rows) reply->add_names(std::string(name_in(one.key)));
    return {};
  });
}

Status op_set_xattr(Context& context, const Call&, const pb::XattrRequest& request,
                    pb::Empty* reply) {
  SL_TRY(check_xattr_name(request.name()));
  if (request.value().size() > kMaxXattrValue)
    return {Errc::too_big, "an extended attribute has at most 64 KiB"};
  if (request.flags() > kReplace) return {Errc::invalid, "set_xattr knows CREATE or REPLACE"};
  const Access access = access_of(request.on());
  const InodeId inode{request.inode()};
  const std::vector<std::string> keys = {inode_key(access.branch, inode),
                                         xattr_key(access.branch, inode, request.name())};
  return change_branch(
      context, access, number_of(Method::set_xattr), keys, reply,
      [&](Change& change, Rows& rows) { return put_xattr(change, request, rows); });
}

Status op_remove_xattr(Context& context, const Call&, const pb::XattrRequest& request,
                       pb::Empty* reply) {
  SL_TRY(check_xattr_name(request.name()));
  const Access access = access_of(request.on());
  const InodeId inode{request.inode()};
  const std::vector<std::string> keys = {inode_key(access.branch, inode),
                                         xattr_key(access.branch, inode, request.name())};
  return change_branch(
      context, access, number_of(Method::remove_xattr), keys, reply,
      [&](Change& change, Rows& rows) { return delete_xattr(change, request, rows); });
}

}  // namespace starlane::meta
