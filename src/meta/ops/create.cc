// create: files, symbolic links, devices, pipes and sockets, files without a name; make_directory.
#include "meta/acl.h"
#include "meta/links.h"
#include "meta/messages.h"
#include "meta/ops/ops.h"
#include "meta/protection.h"

namespace starlane::meta {
namespace {

Status check_create(const pb::CreateRequest& request) {
  if (!request.unnamed()) {
    SL_TRY(check_name(request.name()));
  } else if (!request.name().empty() || (request.mode() & kTypeMask) != kRegular) {
    return {Errc::invalid, "only files are made without a name"};
  }
  switch (request.mode() & kTypeMask) {
    case kSymlink:
      if (request.target().empty()) return {Errc::not_found, "a symbolic link needs a target"};
      if (request.target().size() > kMaxTarget)
        return {Errc::name_too_long, "a link's target has at most 4095 bytes"};
      return {};
    case kRegular:
    case 0010000:
    case 0020000:
    case 0060000:
    case 0140000:
      return {};
    default:
      return {Errc::invalid,
              "create makes anything but directories, and needs the type in the mode"};
  }
}

/// The target of a symbolic link is the content of an inline slice.
void put_target(Change& change, InodeId inode, SliceId slice, const std::string& target) {
  SlicesRow row;
  row.header = change.header();
  Entry entry;
  entry.length = entry.slice_length = static_cast<std::uint32_t>(target.size());
  entry.kind = SliceKind::inline_bytes;
  entry.slice = slice;
  entry.owner = change.branch();
  entry.birth = static_cast<std::uint32_t>(change.head.epoch);
  row.entries.push_back(entry);
  row.inlines.push_back({slice, target});
  change.t.put(slices_key(change.branch(), inode, 0), row.encode());
}

void put_acl(Change& change, InodeId inode, std::string_view name, const Acl& acl, InodeRow& row) {
  change.t.put(xattr_key(change.branch(), inode, name),
               XattrRow{change.header(), acl.encode()}.encode());
  row.flags |= kHasXattrs;
}

/// What the creator did not ask to be kept from others: by the parent's default list, which a
/// change of would break the guard on the parent, or else by the umask.
Status restrict_mode(Change& change, const pb::CreateRequest& request, const InodeRow& parent,
                     InodeId inode, InodeRow& row) {
  if (row.is_symlink()) return {};
  std::optional<kv::Row> found;
  if (parent.flags & kHasXattrs) {
    const std::string key = xattr_key(change.branch(), InodeId{request.parent()}, kDefaultAcl);
    found = SL_TRY(change.t.get(key));
  }
  if (!found) {
    row.mode &= ~(request.umask() & 0777);
    return {};
  }
  const XattrRow inherited = SL_TRY(XattrRow::decode(found->value));
  const Acl acl = SL_TRY(Acl::decode(inherited.value));
  const Acl own = acl.for_new(row.mode & 0777);
  row.mode = (row.mode & ~0777u) | own.permissions();
  if (!own.is_mode_only()) put_acl(change, inode, kAccessAcl, own, row);
  if (row.is_directory()) put_acl(change, inode, kDefaultAcl, acl, row);
  return {};
}

/// Writes a new inode and its name into `parent`; the name must be free.
Status put_new(Change& change, const pb::CreateRequest& request, const Rows& rows, InodeId inode,
               InodeRow* made) {
  const InodeId parent{request.parent()};
  const InodeRow parent_row = SL_TRY(need_directory(rows[0]));
  if (rows[1]) return {Errc::exists, "the name is taken"};
  SL_TRY(may_gain_entry(parent_row));
  InodeRow row = new_inode_row(change, parent, parent_row, request.mode(), request.caller().uid(),
                               request.caller().gid());
  SL_TRY(restrict_mode(change, request, parent_row, inode, row));
  const std::uint32_t type = request.mode() & kTypeMask;
  if (type == 0020000 || type == 0060000) row.rdev = request.rdev();
  if (row.is_symlink()) row.length = row.bytes = request.target().size();
  const std::string name = entry_key(change.branch(), parent, request.name());
  change.t.expect(name, kv::kAbsent);
  EntryRow entry{change.header(), inode, static_cast<std::uint8_t>(row.mode >> 12)};
  change.t.put(name, entry.encode());
  change.t.put(inode_key(change.branch(), inode), row.encode());
  change_directory(change, parent, parent_row, {1, row.is_directory() ? 1 : 0});
  change.charge(static_cast<std::int64_t>(row.bytes), 1);
  *made = row;
  return {};
}

/// A file in no directory, with what `parent` hands down.
Status put_new_unnamed(Change& change, const pb::CreateRequest& request, const Rows& rows,
                       InodeId inode, InodeRow* made) {
  const InodeId parent{request.parent()};
  const InodeRow parent_row = SL_TRY(need_directory(rows[0]));
  SL_TRY(may_gain_entry(parent_row));
  InodeRow row = new_inode_row(change, parent, parent_row, request.mode(), request.caller().uid(),
                               request.caller().gid());
  SL_TRY(restrict_mode(change, request, parent_row, inode, row));
  row.nlink = 0;
  if (request.linkable()) row.flags |= kLinkable;
  put_unnamed(change, {inode, row});
  *made = row;
  return {};
}

Status create_node(Context& context, const pb::CreateRequest& request, Method method,
                   pb::NewEntry* reply) {
  const Access access = access_of(request.on());
  const InodeId parent{request.parent()};
  const bool symlink = (request.mode() & kTypeMask) == kSymlink;
  const InodeId inode = SL_TRY(context.new_inode(access.branch));
  const SliceId slice = symlink ? SL_TRY(context.new_slices(1)) : SliceId{};
  const std::vector<std::string> keys = {inode_key(access.branch, parent),
                                         entry_key(access.branch, parent, request.name())};
  return change_branch(context, access, number_of(method), keys, reply,
                       [&](Change& change, Rows& rows) -> Status {
                         InodeRow row;
                         const auto put = request.unnamed() ? put_new_unnamed : put_new;
                         SL_TRY(put(change, request, rows, inode, &row));
                         if (symlink) put_target(change, inode, slice, request.target());
                         put_attributes(inode, row, {}, reply->mutable_attributes());
                         return {};
                       });
}

}  // namespace

Status op_create(Context& context, const Call&, const pb::CreateRequest& request,
                 pb::NewEntry* reply) {
  SL_TRY(check_create(request));
  return create_node(context, request, Method::create, reply);
}

Status op_make_directory(Context& context, const Call&, const pb::CreateRequest& request,
                         pb::NewEntry* reply) {
  SL_TRY(check_name(request.name()));
  const std::uint32_t type = request.mode() & kTypeMask;
  if (type != 0 && type != kDirectory)
    return {Errc::invalid, "make_directory makes directories only"};
  pb::CreateRequest directory = request;
  directory.set_mode(kDirectory | (request.mode() & ~kTypeMask));
  return create_node(context, directory, Method::make_directory, reply);
}

}  // namespace starlane::meta
