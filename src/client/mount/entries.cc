// Names made, removed and moved.
#include <sys/stat.h>

#include <type_traits>

#include "client/mount/call.h"

namespace starlane::client {
namespace {

/// No open of the file begins while it lives.
class Unlinking {
 public:
  explicit Unlinking(std::shared_ptr<OpenFile> file) : file_(std::move(file)) {
    if (file_) held_ = file_->begin_unlink();
  }
  ~Unlinking() {
    if (file_) file_->end_unlink();
  }
  Unlinking(const Unlinking&) = delete;
  Unlinking& operator=(const Unlinking&) = delete;

  bool held() const { return held_; }
  InodeId inode() const { return file_ ? file_->key.inode : InodeId(); }

 private:
  std::shared_ptr<OpenFile> file_;
  bool held_ = false;
};

}  // namespace

/// Of a directory, while nobody else can change it. After a change of it was announced: then what
/// is known stays what it was before, or the change's outcome is not kept.
std::optional<Attributes> MountCore::known_alone(View& view, InodeId directory) {
  if (!exclusive(view)) return std::nullopt;
  const auto known = names_.attributes(*view.attached, directory);
  if (!known) return std::nullopt;
  return known->value;
}

// ---- Making ----

template <typename Request>
Result<Attributes> MountCore::create_entry(
    View& view, const Caller& caller, InodeId directory, std::string_view name,
    Status (MetaService::*method)(const Call&, const Request&, pb::NewEntry*), Request& request) {
  const FileKey parent = view.file(directory);
  const NameCache::Question question = names_.ask();
  const Requests::Number number = sessions_.requests().begin(caller.unique);
  pb::NewEntry reply;
  NameCache::Change names(names_);
  names.touch_name(parent, name);
  names.touch_attributes(parent);
  const auto before = known_alone(view, directory);
  SL_TRY(call(view, method, request, &reply, caller.unique, number.value()));
  const Attributes attributes = attributes_of(reply.attributes());
  names.now(parent, name, attributes.inode);
  if constexpr (std::is_same_v<Request, pb::CreateRequest>) {  // what is new tells when it was made
    const auto after =
        before ? after_entry(*before, attributes.ctime, attributes.is_directory() ? 1 : 0)
               : std::nullopt;
    if (after) names.now(parent, *after);
  }
  names_.learn_attributes(question, view.branch(), attributes);
  return attributes;
}

Result<Attributes> MountCore::create_kind(View& view, const Caller& caller, InodeId directory,
                                          std::string_view name, std::uint32_t mode,
                                          std::uint32_t rdev, std::string_view target) {
  pb::CreateRequest request;
  request.set_parent(directory.value);
  request.set_name(std::string(name));
  request.mutable_caller()->set_uid(caller.uid);
  request.mutable_caller()->set_gid(caller.gid);
  request.set_mode(mode);
  request.set_umask(caller.umask);
  request.set_rdev(rdev);
  request.set_target(std::string(target));
  const auto method = S_ISDIR(mode) ? &MetaService::make_directory : &MetaService::create;
  return create_entry(view, caller, directory, name, method, request);
}

Result<EntryReply> MountCore::make_node(const Caller& caller, Node parent, std::string_view name,
                                        std::uint32_t mode, std::uint32_t rdev) {
  View* view = SL_TRY(changeable(parent));
  if ((mode & S_IFMT) == 0) mode |= S_IFREG;
  const Attributes made = SL_TRY(create_kind(*view, caller, parent.inode, name, mode, rdev, {}));
  return entry_reply(*view, parent.inode, name, made, options_.names.shared_ttl);
}

Result<EntryReply> MountCore::make_directory(const Caller& caller, Node parent,
                                             std::string_view name, std::uint32_t mode) {
  View* view = SL_TRY(changeable(parent));
  const Attributes made =
      SL_TRY(create_kind(*view, caller, parent.inode, name, (mode & 07777) | S_IFDIR, 0, {}));
  return entry_reply(*view, parent.inode, name, made, options_.names.shared_ttl);
}

Result<EntryReply> MountCore::make_symlink(const Caller& caller, Node parent, std::string_view name,
                                           std::string_view target) {
  View* view = SL_TRY(changeable(parent));
  const Attributes made =
      SL_TRY(create_kind(*view, caller, parent.inode, name, S_IFLNK | 0777, 0, target));
  return entry_reply(*view, parent.inode, name, made, options_.names.shared_ttl);
}

Result<EntryReply> MountCore::link(const Caller& caller, Node node, Node parent,
                                   std::string_view name) {
  View* view = SL_TRY(changeable(parent));
  if (node.slot != parent.slot) return {Errc::cross_device, "a link stays in its volume"};
  pb::LinkRequest request;
  request.set_inode(node.inode.value);
  request.set_parent(parent.inode.value);
  request.set_name(std::string(name));
  Result<Attributes> linked = [&] {
    NameCache::Change names(names_);
    names.touch_attributes(view->file(node.inode));
    auto made = create_entry(*view, caller, parent.inode, name, &MetaService::link, request);
    if (made.ok()) names.now(view->file(node.inode), *made);
    return made;
  }();
  if (!linked.ok()) return linked.status();
  // It may have had none before.
  if (const auto open = open_files_.find(view->file(node.inode))) mark_unlinked(*open, false);
  return entry_reply(*view, parent.inode, name, *linked, options_.names.shared_ttl);
}

// ---- Removing ----

std::shared_ptr<OpenFile> MountCore::guess(View& view, InodeId directory, std::string_view name,
                                           std::uint64_t unique) {
  // Only whether it is open here hangs on it. A wrong guess is set right by the server's feed of
  // what was unlinked.
  InodeId inode = names_.last_known(view.file(directory), name);
  if (!inode) {
    const Result<Found> found = find(view, directory, name, unique);
    if (found.ok()) inode = found->attributes.inode;
  }
  return inode ? open_files_.get(view.file(inode)) : nullptr;
}

void MountCore::after_unlink(View& view, InodeId inode, std::uint32_t links_left) {
  if (!inode || links_left != 0) return;
  const FileKey file = view.file(inode);
  if (const auto open = open_files_.find(file); open && open->open())
    mark_unlinked(*open, true);
  else
    io_.discard(file, 0);
}

Status MountCore::unlink(const Caller& caller, Node parent, std::string_view name) {
  View* view = SL_TRY(changeable(parent));
  const Unlinking unlinking(guess(*view, parent.inode, name, caller.unique));
  pb::UnlinkRequest request;
  request.set_parent(parent.inode.value);
  request.set_name(std::string(name));
  request.set_held(unlinking.held());
  const Requests::Number number = sessions_.requests().begin(caller.unique);
  pb::UnlinkReply reply;
  NameCache::Change names(names_);
  names.touch_name(view->file(parent.inode), name);
  names.touch_attributes(view->file(parent.inode));
  if (unlinking.inode()) names.touch_attributes(view->file(unlinking.inode()));
  const auto before = known_alone(*view, parent.inode);
  const auto file_before = known_alone(*view, unlinking.inode());
  SL_TRY(call(*view, &MetaService::unlink, request, &reply, caller.unique, number.value()));
  names.now(view->file(parent.inode), name, InodeId());
  const Attributes left = attributes_of(reply.attributes());
  // A file's time of change is the unlink's, unless it was later already.
  const bool tells =
      file_before && left.inode == unlinking.inode() && left.ctime > file_before->ctime;
  if (const auto after = before && tells ? after_entry(*before, left.ctime, 0) : std::nullopt)
    names.now(view->file(parent.inode), *after);
  if (left.nlink != 0) names.now(view->file(left.inode), left);
  after_unlink(*view, InodeId(reply.inode()), left.nlink);
  return {};
}

Status MountCore::remove_directory(const Caller& caller, Node parent, std::string_view name) {
  View* view = SL_TRY(changeable(parent));
  const InodeId known = names_.last_known(view->file(parent.inode), name);
  pb::UnlinkRequest request;
  request.set_parent(parent.inode.value);
  request.set_name(std::string(name));
  const Requests::Number number = sessions_.requests().begin(caller.unique);
  pb::UnlinkReply reply;
  NameCache::Change names(names_);
  names.touch_name(view->file(parent.inode), name);
  names.touch_attributes(view->file(parent.inode));
  if (known) names.touch_attributes(view->file(known));
  SL_TRY(
      call(*view, &MetaService::remove_directory, request, &reply, caller.unique, number.value()));
  names.now(view->file(parent.inode), name, InodeId());
  return {};
}

// ---- Moving ----

Status MountCore::rename(const Caller& caller, Node parent, std::string_view name, Node new_parent,
                         std::string_view new_name, std::uint32_t flags) {
  constexpr std::uint32_t kExchange = 2, kWhiteout = 4;
  View* view = SL_TRY(changeable(parent));
  if (new_parent.slot != parent.slot)
    return Status(Errc::cross_device, "a rename stays in its volume");
  if ((flags & ~7u) != 0) return Status(Errc::invalid, "unknown rename flags");
  const FileKey from = view->file(parent.inode);
  const FileKey to = view->file(new_parent.inode);
  const Unlinking replacing(guess(*view, new_parent.inode, new_name, caller.unique));
  const InodeId moving = names_.last_known(from, name);
  pb::RenameRequest request;
  request.set_parent(parent.inode.value);
  request.set_name(std::string(name));
  request.set_new_parent(new_parent.inode.value);
  request.set_new_name(std::string(new_name));
  request.set_flags(flags);
  request.set_target_held(replacing.held());
  request.mutable_caller()->set_uid(caller.uid);
  request.mutable_caller()->set_gid(caller.gid);
  const Requests::Number number = sessions_.requests().begin(caller.unique);
  pb::RenameReply reply;
  NameCache::Change names(names_);
  names.touch_name(from, name);
  names.touch_name(to, new_name);
  for (const InodeId inode : {parent.inode, new_parent.inode, moving, replacing.inode()})
    if (inode) names.touch_attributes(view->file(inode));
  SL_TRY(call(*view, &MetaService::rename, request, &reply, caller.unique, number.value()));

  const Attributes moved = attributes_of(reply.moved());
  const Attributes replaced = attributes_of(reply.replaced());
  // Two names of one file: POSIX does nothing, and what is known is asked again.
  const bool same_file = moved.inode == replaced.inode || (moving && moving == replacing.inode());
  if (same_file) return {};
  names.now(view->file(moved.inode), moved);
  names.now(to, new_name, moved.inode);
  // What hides the old name is asked for when somebody looks.
  if ((flags & kWhiteout) == 0)
    names.now(from, name, flags & kExchange ? replaced.inode : InodeId());
  nodes_.renamed({view->slot, incarnation_of(*view, moved), moved.inode}, new_parent.inode,
                 new_name);
  if (flags & kExchange) {
    names.now(view->file(replaced.inode), replaced);
    nodes_.renamed({view->slot, incarnation_of(*view, replaced), replaced.inode}, parent.inode,
                   name);
  } else if (reply.has_replaced()) {
    if (replaced.nlink != 0) names.now(view->file(replaced.inode), replaced);
    after_unlink(*view, replaced.inode, replaced.nlink);
  }
  return {};
}

}  // namespace starlane::client
