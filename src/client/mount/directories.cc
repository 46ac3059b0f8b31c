// Listing.
#include <sys/stat.h>

#include "client/mount/call.h"

namespace starlane::client {
namespace {

constexpr std::uint64_t kDots = 2;  // "." and ".." come first in a pass
constexpr std::uint32_t kDirectoryType = S_IFDIR >> 12;

}  // namespace

Result<std::uint64_t> MountCore::open_directory(const Caller& caller, Node node) {
  if (const auto left = directories_left_.find(caller.unique); left != directories_left_.end())
    release_directory(left->second);
  auto handle = std::make_shared<DirectoryHandle>();
  handle->node = node;
  if (node.slot != 0) handle->view = SL_TRY(views_.at(node.slot));
  const std::uint64_t id = directories_.next();
  note_directory(id, *handle, caller.unique);
  directories_.put(id, std::move(handle));
  return id;
}

void MountCore::release_directory(std::uint64_t id) {
  const auto handle = directories_.take(id);
  if (!handle) return;
  handle->pass.rewind();
  strike({Ledger::Kind::directory, id});
}

Status MountCore::fsync_directory(const Caller& caller, std::uint64_t id) {
  const std::shared_ptr<DirectoryHandle> handle = SL_TRY(directories_.at(id));
  if (handle->view == nullptr || handle->view->frozen()) return {};
  return meta_flush(caller);
}

Status MountCore::read_directory(const Caller& caller, std::uint64_t id, std::uint64_t cookie,
                                 bool with_attributes, DirectoryFiller& filler) {
  const std::shared_ptr<DirectoryHandle> handle = SL_TRY(directories_.at(id));
  if (handle->view != nullptr && handle->view->attached->gone())
    return Status(Errc::stale_handle, "the volume is not there any more");
  Turn::Alone turn(handle->turn);
  if (cookie == 0) handle->pass.rewind();
  const bool all = SL_TRY(add_dots(*handle, cookie, with_attributes, caller.unique, filler));
  if (!all) return {};
  const auto source = [&](const std::string& after) {
    return handle->view == nullptr ? list_own(*handle, caller.unique)
                                   : list_view(*handle, after, with_attributes, caller.unique);
  };
  bool added = cookie < kDots;
  for (std::uint64_t number = std::max(cookie, kDots) - kDots;; ++number) {
    // What was taken is on its way before the next page is asked for.
    if (added && number != 0 && !handle->pass.in_memory(number)) return {};
    const ListedName* name = SL_TRY(handle->pass.at(number, source));
    if (name == nullptr) return {};
    if (!add_name(*handle, *name, number + kDots + 1, with_attributes, filler)) return {};
    added = true;
  }
}

Result<bool> MountCore::add_dots(DirectoryHandle& handle, std::uint64_t cookie,
                                 bool with_attributes, std::uint64_t unique,
                                 DirectoryFiller& filler) {
  if (cookie >= kDots) return true;
  const ViewId view = handle.view == nullptr ? kOwnView : handle.view->view();
  std::uint64_t above = st_ino(kOwnView, kRootInode);
  if (handle.view == nullptr) {
    above = st_ino(kOwnView, SL_TRY(own_.attributes(handle.node.inode)).parent);
  } else if (handle.node.inode == kRootInode) {
    above = st_ino(kOwnView,
                   handle.view->attached->target.volume.empty() ? kPublicInode : kVolumesInode);
  } else {
    above = st_ino(view, SL_TRY(fetch(*handle.view, handle.node.inode, unique)).value.parent);
  }
  const EntryReply nothing;  // counts as no lookup
  const EntryReply* entry = with_attributes ? &nothing : nullptr;
  if (cookie == 0 && !filler.add(".", st_ino(view, handle.node.inode), kDirectoryType, 1, entry))
    return false;
  return filler.add("..", above, kDirectoryType, kDots, entry);
}

bool MountCore::add_name(DirectoryHandle& handle, const ListedName& name, std::uint64_t next,
                         bool with_attributes, DirectoryFiller& filler) {
  if (!with_attributes) return filler.add(name.name, name.ino, name.type, next, nullptr);
  EntryReply entry;
  if (handle.view == nullptr) return filler.add(name.name, name.ino, name.type, next, &entry);
  // Only from what is still right: the page may be older than a change made since.
  View& view = *handle.view;
  const auto known = known_name(view, handle.node.inode, name.name);
  if (known && !known->attributes.inode) return true;  // removed since
  if (!known || known->attributes.inode != name.inode)
    return filler.add(name.name, name.ino, name.type, next, &entry);
  entry = entry_reply(view, handle.node.inode, name.name, known->attributes, known->valid);
  if (filler.add(name.name, name.ino, name.type, next, &entry)) return true;
  forget(entry.node, 1);  // it was not taken
  return false;
}

Result<pb::ReadDirectoryReply> MountCore::ask_page(View& view, InodeId directory,
                                                   const std::string& after, bool with_attributes,
                                                   std::uint64_t unique) {
  pb::ReadDirectoryRequest request;
  request.set_inode(directory.value);
  request.set_after(after);
  request.set_limit(options_.directory_page);
  request.set_attributes(with_attributes);
  pb::ReadDirectoryReply reply;
  SL_TRY(node_status(call(view, &MetaService::read_directory, request, &reply, unique)));
  return reply;
}

Result<ListedPage> MountCore::list_view(DirectoryHandle& handle, const std::string& after,
                                        bool with_attributes, std::uint64_t unique) {
  View& view = *handle.view;
  const NameCache::Question question = names_.ask();
  pb::ReadDirectoryReply reply =
      SL_TRY(ask_page(view, handle.node.inode, after, with_attributes, unique));
  ListedPage page;
  page.end = reply.end();
  page.names.reserve(static_cast<std::size_t>(reply.entries_size()));
  for (pb::DirectoryEntry& entry : *reply.mutable_entries()) {
    const InodeId inode(entry.inode());
    if (entry.has_attributes()) {
      const Attributes attributes = attributes_of(entry.attributes());
      names_.learn_attributes(question, view.branch(), attributes);
      names_.learn_name(question, view.file(handle.node.inode), entry.name(), inode);
      heard_of(view, attributes);
    }
    page.names.push_back(
        {std::move(*entry.mutable_name()), inode, entry.type(), st_ino(view.view(), inode)});
  }
  return page;
}

Result<ListedPage> MountCore::list_own(DirectoryHandle& handle, std::uint64_t unique) {
  const auto listing = SL_TRY(catalogue_.listing(options_.catalogue_age, unique));
  ListedPage page;
  page.end = true;
  for (const OwnTree::Entry& entry : own_.list(handle.node.inode, *listing)) {
    const std::uint64_t ino =
        entry.item ? st_ino(entry.item->view, kRootInode) : st_ino(kOwnView, entry.inode);
    page.names.push_back({entry.name, entry.inode, kDirectoryType, ino});
  }
  return page;
}

}  // namespace starlane::client
