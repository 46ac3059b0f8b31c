// Extended attributes. The kernel asks for some that nobody ever set, at each write or listing:
// which names a file has is remembered.
#include <algorithm>

#include "client/mount/call.h"

namespace starlane::client {
namespace {

/// Names that only a file system could give meaning to (system.nfs4_acl) are refused: whoever sets
/// one must learn that it has no effect. POSIX ACLs have: the server keeps them and the mode in
/// agreement, the kernel checks them.
Status check_namespace(std::string_view name) {
  if (!name.starts_with("system.") || name == "system.posix_acl_access" ||
      name == "system.posix_acl_default")
    return {};
  return {Errc::unsupported, "of system.* attributes only POSIX ACLs are supported"};
}

}  // namespace

Result<NameCache::Xattrs> MountCore::xattr_names(View& view, InodeId inode, std::uint64_t unique) {
  if (auto known = names_.xattrs(*view.attached, inode)) return known;
  // The kernel asks for the access list of whatever somebody else than its owner opens.
  if (const auto file = names_.attributes(*view.attached, inode); file && !file->value.has_xattrs)
    return std::make_shared<const std::vector<std::string>>();
  const NameCache::Question question = names_.ask();
  pb::NodeRequest request;
  request.set_inode(inode.value);
  pb::XattrReply reply;
  SL_TRY(node_status(call(view, &MetaService::list_xattrs, request, &reply, unique)));
  auto names =
      std::make_shared<const std::vector<std::string>>(reply.names().begin(), reply.names().end());
  names_.learn_xattrs(question, view.file(inode), names);
  return NameCache::Xattrs(names);
}

Result<std::string> MountCore::get_xattr(const Caller& caller, Node node, std::string_view name) {
  SL_TRY(check_namespace(name));
  const Status none(Errc::no_attribute, "no such extended attribute");
  if (node.slot == 0) return none;
  View* view = SL_TRY(views_.at(node.slot));
  const NameCache::Xattrs names = SL_TRY(xattr_names(*view, node.inode, caller.unique));
  if (std::find(names->begin(), names->end(), name) == names->end()) return none;
  pb::XattrRequest request;
  request.set_inode(node.inode.value);
  request.set_name(std::string(name));
  pb::XattrReply reply;
  SL_TRY(node_status(call(*view, &MetaService::get_xattr, request, &reply, caller.unique)));
  return std::move(*reply.mutable_value());
}

Result<std::vector<std::string>> MountCore::list_xattrs(const Caller& caller, Node node) {
  if (node.slot == 0) return std::vector<std::string>();
  View* view = SL_TRY(views_.at(node.slot));
  std::vector<std::string> names = *SL_TRY(xattr_names(*view, node.inode, caller.unique));
  // As other file systems do: those who may not read them do not see them.
  if (caller.uid != 0)
    std::erase_if(names, [](auto& name) { return name.starts_with("trusted."); });
  return names;
}

Status MountCore::set_xattr(const Caller& caller, Node node, std::string_view name,
                            std::string_view value, const SetXattr& options) {
  SL_TRY(check_namespace(name));
  View* view = SL_TRY(changeable(node));
  send_put_off(view->file(node.inode));  // an access list and the mode follow each other
  pb::XattrRequest request;
  request.set_inode(node.inode.value);
  request.set_name(std::string(name));
  request.set_value(std::string(value));
  request.set_flags(options.flags);
  request.set_kill_setgid(options.kill_setgid);
  const Requests::Number number = sessions_.requests().begin(caller.unique);
  pb::Empty reply;
  NameCache::Change names(names_);
  names.touch_attributes(view->file(node.inode));
  return node_status(
      call(*view, &MetaService::set_xattr, request, &reply, caller.unique, number.value()));
}

Status MountCore::remove_xattr(const Caller& caller, Node node, std::string_view name) {
  SL_TRY(check_namespace(name));
  View* view = SL_TRY(changeable(node));
  send_put_off(view->file(node.inode));  // an access list and the mode follow each other
  pb::XattrRequest request;
  request.set_inode(node.inode.value);
  request.set_name(std::string(name));
  const Requests::Number number = sessions_.requests().begin(caller.unique);
  pb::Empty reply;
  NameCache::Change names(names_);
  names.touch_attributes(view->file(node.inode));
  return node_status(
      call(*view, &MetaService::remove_xattr, request, &reply, caller.unique, number.value()));
}

}  // namespace starlane::client
