// Opening, creating and closing: the gate where this host learns of what other hosts closed.
#include <fcntl.h>
#include <sys/stat.h>

#include "client/mount/call.h"
#include "client/open_flags.h"
#include "client/takeover/records.h"

namespace starlane::client {
namespace {

bool truncates(std::uint32_t flags) { return (flags & O_TRUNC) != 0 && writes(flags); }

}  // namespace

// ---- The gate ----

Result<Attributes> MountCore::gate(View& view, Node node, std::uint32_t flags, const Caller& caller,
                                   bool check_name) {
  if (view.frozen()) return SL_TRY(fetch(view, node.inode, caller.unique)).value;
  if (!truncates(flags) && exclusive(view)) {
    // Nobody else can have changed it. What its flags forbid is the server's to say.
    const auto known = names_.attributes(*view.attached, node.inode);
    if (known && !(writes(flags) && known->value.flags != 0)) return known->value;
  }
  if (!truncates(flags)) return gate_call(view, node, flags, caller, check_name);

  const auto file = open_files_.get(view.file(node.inode));
  Turn::Alone turn(file->turn);
  // What others wrote is not lost when the name turns out to name another file.
  io_.push_out(file->key);
  const auto before = names_.attributes(*view.attached, node.inode);
  const std::uint64_t previous = before && exclusive(view) ? before->value.version : 0;
  const Attributes attributes = SL_TRY(gate_call(view, node, flags, caller, check_name));
  if (previous == attributes.version) return attributes;  // it was empty before
  incarnations_.local_truncate(file->key, 0);
  content_changed(view, *file, previous, attributes);
  return attributes;
}

Result<Attributes> MountCore::gate_call(View& view, Node node, std::uint32_t flags,
                                        const Caller& caller, bool check_name) {
  const FileKey file = view.file(node.inode);
  pb::OpenRequest request;
  request.set_inode(node.inode.value);
  request.set_known_version(nodes_.content({view.slot, 0, node.inode}).pages);
  request.set_write(writes(flags));
  request.set_truncate(truncates(flags));
  request.set_append((flags & O_APPEND) != 0);
  const auto by = nodes_.found_by(node);
  if (check_name && by && !view.frozen()) {  // in a frozen tree a name stays
    request.set_parent(by->parent.value);
    request.set_name(by->name);
  }
  const NameCache::Question question = names_.ask();
  pb::OpenReply reply;
  Status status;
  Attributes attributes;
  {
    std::optional<NameCache::Change> change;
    if (truncates(flags)) change.emplace(names_).touch_attributes(file);
    status = call(view, &MetaService::open, request, &reply, caller.unique);
    attributes = attributes_of(reply.attributes());
    if (status.ok() && !reply.moved() && change) change->now(file, attributes);
  }
  if (status.ok() && !reply.moved()) {
    if (!truncates(flags)) names_.learn_attributes(question, view.branch(), attributes);
    return attributes;
  }
  if (!status.ok() && status.code() != Errc::not_found) return status;
  if (by) names_.forget_name(view.file(by->parent), by->name);
  if (!status.ok()) names_.forget_attributes(file);
  return {Errc::stale_handle, "the name names another file by now"};
}

// ---- Opening ----

Result<OpenReply> MountCore::open(const Caller& caller, Node node, std::uint32_t flags) {
  if (node.slot == 0) return {Errc::is_directory, "a directory"};
  if (is_tree_file(node)) return open_tree_file(caller, node, flags);
  View* view = SL_TRY(views_.at(node.slot));
  if (view->frozen() && (writes(flags) || (flags & O_TRUNC) != 0))
    return {Errc::read_only, "a published data set cannot be changed"};
  const auto file = open_files_.get(view->file(node.inode));
  const bool again = relooks_.take(caller.pid, now());
  if (again) strike({Ledger::Kind::moved, caller.pid});
  file->opened(writes(flags));
  Result<OpenReply> reply = open_counted(*view, node, flags, caller, file, again);
  if (reply.ok()) return reply;
  close_counted(*file, writes(flags));
  if (reply.code() == Errc::stale_handle && !again) {
    note({Ledger::Kind::moved, caller.pid}, MovedRecord{now().count()});
    relooks_.told(caller.pid, now());
  }
  return reply;
}

Result<OpenReply> MountCore::open_counted(View& view, Node node, std::uint32_t flags,
                                          const Caller& caller,
                                          const std::shared_ptr<OpenFile>& file, bool again) {
  const Attributes attributes = SL_TRY(gate(view, node, flags, caller, !again));
  if (S_ISDIR(attributes.mode)) return {Errc::is_directory, "a directory"};
  file->learn(attributes.state());
  return serve(view, node, flags, caller, file, attributes, again);
}

bool MountCore::sync_kernel(View& view, Node node, const Attributes& attributes) {
  const Node plain{view.slot, 0, node.inode};
  const std::uint64_t pages = nodes_.content(plain).pages;
  const std::uint64_t shown = nodes_.content(node).shown;
  if (view.frozen()) return true;
  if (pages == attributes.version) return true;
  const FileKey file = view.file(node.inode);
  const bool ours = io_.dirty(file).has_value();
  if (pages != 0 && !ours) {
    nodes_.set_pages(plain, 0);
    io_.invalidate(file);
    incarnations_.remote_change(file);
    notifier_->invalidate_inode(plain, 0, 0);
  }
  // Else the kernel would go on with the length that it was told before.
  const bool told = shown != 0 || taken_over();
  if (told && shown != attributes.version && !ours) notifier_->invalidate_inode(node, -1, 0);
  return false;
}

Result<OpenReply> MountCore::serve(View& view, Node node, std::uint32_t flags, const Caller& caller,
                                   const std::shared_ptr<OpenFile>& file,
                                   const Attributes& attributes, bool again) {
  const bool keep = sync_kernel(view, node, attributes);
  const bool writer = writes(flags);
  const Incarnations::Open ask{.file = file->key,
                               .node = node,
                               .state = attributes.state(),
                               .flags = flags,
                               .written = file->has_writer(),
                               .unique = caller.unique,
                               .pid = caller.pid};
  OpenDecision decision = SL_TRY(incarnations_.open(ask));
  if (decision.kind == OpenDecision::Kind::moved && again)
    decision = SL_TRY(incarnations_.open(ask));
  if (decision.kind == OpenDecision::Kind::moved)
    return {Errc::stale_handle, "another incarnation is preferred"};

  auto handle = std::make_shared<FileHandle>();
  handle->node = node;
  handle->view = &view;
  handle->file = file;
  handle->flags = flags;
  handle->writer = writer;
  handle->passthrough = decision.kind == OpenDecision::Kind::passthrough;
  // Appending where others append too: the server says where, so the kernel must not cache what it
  // thinks.
  const bool append_shared = writer && (flags & O_APPEND) != 0 && !exclusive(view);
  handle->direct = decision.kind == OpenDecision::Kind::direct ||
                   (!handle->passthrough && ((flags & O_DIRECT) != 0 || append_shared));
  handle->streams = io_.new_streams();
  if (handle->direct) file->note_direct(1);
  OpenReply reply;
  if (handle->passthrough) {
    reply.mode = OpenMode::passthrough;
    reply.backing_fd = decision.backing_fd;
  } else if (handle->direct) {
    reply.mode = OpenMode::direct;
  } else {
    reply.keep_cache = keep;
    nodes_.set_pages({view.slot, 0, node.inode}, attributes.version);
  }
  // Where nothing is ever written, locks end with the last close of their open file: a request less
  // for each of a million small files.
  reply.unflushed = view.frozen();
  reply.handle = files_.next();
  note_file(reply.handle, *handle, caller.unique);
  files_.put(reply.handle, std::move(handle));
  return reply;
}

Result<Vfs::Created> MountCore::create(const Caller& caller, Node parent, std::string_view name,
                                       std::uint32_t mode, std::uint32_t flags) {
  View* view = SL_TRY(changeable(parent));
  relooks_.forget(caller.pid);
  const Result<Attributes> made =
      create_kind(*view, caller, parent.inode, name, (mode & 07777) | S_IFREG, 0, {});
  if (made.code() == Errc::exists && (flags & O_EXCL) == 0) {  // another host was first
    names_.forget_name(view->file(parent.inode), name);
    return create_by_opening(caller, parent, name, flags);
  }
  SL_TRY(made.status());
  const EntryReply entry = entry_reply(*view, parent.inode, name, *made, options_.names.shared_ttl);
  return open_created(*view, caller, entry, flags, *made);
}

Result<Vfs::Created> MountCore::open_created(View& view, const Caller& caller,
                                             const EntryReply& entry, std::uint32_t flags,
                                             const Attributes& made) {
  const auto file = open_files_.get(view.file(made.inode));
  file->opened(writes(flags));
  if (made.nlink == 0) mark_unlinked(*file, true);
  file->learn(made.state());
  Result<OpenReply> opened = serve(view, entry.node, flags, caller, file, made, true);
  if (opened.ok()) return Created{entry, *opened};
  close_counted(*file, writes(flags));
  forget(entry.node, 1);  // the kernel does not hear of it
  return opened.status();
}

Result<Vfs::Created> MountCore::create_unnamed(const Caller& caller, Node directory,
                                               std::uint32_t mode, std::uint32_t flags) {
  View* view = SL_TRY(changeable(directory));
  pb::CreateRequest request;
  request.set_parent(directory.inode.value);
  request.mutable_caller()->set_uid(caller.uid);
  request.mutable_caller()->set_gid(caller.gid);
  request.set_mode((mode & 07777) | S_IFREG);
  request.set_umask(caller.umask);
  request.set_unnamed(true);
  request.set_linkable((flags & O_EXCL) == 0);
  const NameCache::Question question = names_.ask();
  const Requests::Number number = sessions_.requests().begin(caller.unique);
  pb::NewEntry reply;
  SL_TRY(call(*view, &MetaService::create, request, &reply, caller.unique, number.value()));
  const Attributes made = attributes_of(reply.attributes());
  names_.learn_attributes(question, view->branch(), made);
  const EntryReply entry = entry_reply(*view, directory.inode, {}, made, options_.names.shared_ttl);
  return open_created(*view, caller, entry, flags, made);
}

Result<Vfs::Created> MountCore::create_by_opening(const Caller& caller, Node parent,
                                                  std::string_view name, std::uint32_t flags) {
  Created created;
  created.entry = SL_TRY(lookup(caller, parent, name));
  if (!created.entry.node.inode) return {Errc::stale_handle, "the name came and went"};
  const Result<OpenReply> opened = [&]() -> Result<OpenReply> {
    if (!S_ISREG(created.entry.attributes.stat.mode))
      return {Errc::exists, "there is something else of this name"};
    return open(caller, created.entry.node, flags);
  }();
  if (!opened.ok()) {
    forget(created.entry.node, 1);
    return opened.status();
  }
  created.open = *opened;
  return created;
}

// ---- Closing ----

void MountCore::close_counted(OpenFile& file, bool writer) {
  if (!file.closed(writer)) return;
  io_.discard(file.key, 0);
  strike({Ledger::Kind::unlinked, file.key.branch.value, file.key.inode.value});
}

void MountCore::release(const Caller& caller, std::uint64_t id) {
  if (is_tree_handle(id)) return images_.closed(slot_of_tree(id));
  const auto handle = files_.take(id);
  if (!handle) return;
  for (const HeldLocks::Key& key : held_locks_.through(id)) unlock_all(caller, handle, key);
  strike({Ledger::Kind::file, id});
  if (handle->direct) handle->file->note_direct(-1);
  incarnations_.release(handle->file->key, handle->node, handle->writer);
  close_counted(*handle->file, handle->writer);
}

}  // namespace starlane::client
