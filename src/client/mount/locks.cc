// Advisory locks: kept by the metadata server, so that they hold between hosts. Taking one makes
// this host see what others wrote before; giving one up commits what was written under it.
#include "client/mount/call.h"
#include "common/log.h"

namespace starlane::client {
namespace {

constexpr std::uint64_t kToEnd = (std::uint64_t{1} << 63) - 1;
constexpr Nanoseconds kGiveUpPatience = Milliseconds(200);

void put_lock(const LockRequest& request, pb::FileLock* out) {
  out->set_kind(static_cast<pb::FileLock::Kind>(request.lock.kind));
  out->set_type(static_cast<pb::FileLock::Type>(request.lock.type));
  out->set_owner(request.owner);
  out->set_start(request.lock.start);
  out->set_end(request.lock.end);
  out->set_pid(request.lock.pid);
}

bool is_whole(const FileLock& lock) {
  return lock.kind == LockKind::flock || (lock.start == 0 && lock.end >= kToEnd);
}

/// What was locked under an attachment that has ended is lost, and with it all that was done in its
/// name: its owner must not lock on as if nothing had happened.
bool lost(const FileHandle& handle, std::uint64_t held_under) {
  return held_under != 0 && held_under != handle.view->attached->locks_epoch();
}

Status lost_earlier() {
  return {Errc::no_locks, "earlier locks of this file were lost with their session: unlock it"};
}

FileLock whole(LockKind kind) {
  return {.kind = kind, .type = LockType::unlock, .start = 0, .end = kToEnd, .pid = 0};
}

}  // namespace

Result<FileLock> MountCore::test_lock(const Caller& caller, Node, const LockRequest& request) {
  const std::shared_ptr<FileHandle> handle = SL_TRY(files_.at(request.handle));
  pb::LockRequest ask;
  ask.set_inode(handle->file->key.inode.value);
  put_lock(request, ask.mutable_lock());
  pb::TestLockReply reply;
  SL_TRY(call(*handle->view, &MetaService::test_lock, ask, &reply, caller.unique));
  FileLock found = request.lock;
  found.type = LockType::unlock;
  if (!reply.has_conflict()) return found;
  const pb::FileLock& conflict = reply.conflict();
  found.type = conflict.type() == pb::FileLock::WRITE ? LockType::write : LockType::read;
  found.start = conflict.start();
  found.end = conflict.end();
  found.pid = conflict.pid();
  return found;
}

Status MountCore::set_lock(const Caller& caller, Node, const LockRequest& request) {
  const std::shared_ptr<FileHandle> handle = SL_TRY(files_.at(request.handle));
  const HeldLocks::Key key{handle->file->key, request.lock.kind, request.owner};
  if (request.lock.type == LockType::unlock) return unlock(handle, key, request, caller);
  return ask_lock(handle, key, request, caller, /*waits=*/false);
}

void MountCore::await_lock(const Caller& caller, Node node, const LockRequest& request,
                           LockDone done) {
  const auto found = files_.at(request.handle);
  if (!found.ok() || request.lock.type == LockType::unlock)
    return done(set_lock(caller, node, request));
  const std::shared_ptr<FileHandle>& handle = *found;
  const HeldLocks::Key key{handle->file->key, request.lock.kind, request.owner};
  const auto attempt = [=, this] { return ask_lock(handle, key, request, caller, /*waits=*/true); };
  const Status first = attempt();
  if (first.code() != Errc::would_block) return done(first);
  lock_queue_.add({.unique = caller.unique,
                   .attempt = attempt,
                   .give_up = [=, this] { stop_waiting(request.owner, caller.unique); },
                   .done = std::move(done)});
}

Status MountCore::ask_lock(const std::shared_ptr<FileHandle>& handle, const HeldLocks::Key& key,
                           const LockRequest& request, const Caller& caller, bool waits) {
  const auto held = held_locks_.find(key);
  if (held && lost(*handle, *held)) return lost_earlier();
  SL_TRY(held_locks_.note(key, request.handle));
  // What this host has written and not committed would hide what others did.
  if (!exclusive(*handle->view) && io_.dirty(key.file)) io_.push_out(key.file);
  pb::LockRequest ask;
  ask.set_inode(key.file.inode.value);
  put_lock(request, ask.mutable_lock());
  if (waits) ask.set_wait(caller.unique);
  const Requests::Number number = sessions_.requests().begin(/*unique=*/0);  // each attempt's own
  const NameCache::Question question = names_.ask();
  pb::LockReply reply;
  SL_TRY(node_status(
      call(*handle->view, &MetaService::lock, ask, &reply, caller.unique, number.value())));
  if (!reply.granted()) return {Errc::would_block, "another has a lock on it"};
  if (held && lost(*handle, *held)) {  // on the way: it came to be granted in a new session
    const Status undone =
        send_unlock(*handle, {.owner = request.owner, .lock = whole(key.kind)}, caller);
    return undone.ok() ? lost_earlier() : undone;
  }
  held_locks_.granted(key, request.handle, reply.lives_with());
  handle->locked_under.store(reply.lives_with(), std::memory_order_relaxed);
  const Attributes attributes = attributes_of(reply.attributes());
  names_.learn_attributes(question, key.file.branch, attributes);
  revalidate(*handle, attributes);
  return {};
}

void MountCore::revalidate(FileHandle& handle, const Attributes& attributes) {
  if (handle.view->frozen()) return;
  handle.file->learn(attributes.state());
  const Node plain{handle.view->slot, 0, handle.file->key.inode};
  const std::uint64_t pages = nodes_.content(plain).pages;
  if (pages == attributes.version) return;
  io_.invalidate(handle.file->key);
  if (pages != 0) incarnations_.remote_change(handle.file->key);
  notifier_->invalidate_inode(plain, 0, 0);
  if (handle.node != plain) notifier_->invalidate_inode(handle.node, -1, 0);
  nodes_.set_pages(plain, attributes.version);
}

Status MountCore::unlock(const std::shared_ptr<FileHandle>& handle, const HeldLocks::Key& key,
                         const LockRequest& request, const Caller& caller) {
  const auto held = held_locks_.find(key);
  if (!held) return {};
  Status flushed;
  if (!lost(*handle, *held)) {
    // The next to lock it must find what was written under this lock, on whichever host.
    if (!exclusive(*handle->view) && io_.dirty(key.file))
      flushed = io_.flush(key.file, Safety::accepted);
    SL_TRY(send_unlock(*handle, request, caller));
  }
  if (!is_whole(request.lock)) return flushed;
  for (const std::uint64_t id : held_locks_.drop(key)) {
    const auto bare = files_.at(id);
    if (bare.ok()) (*bare)->locked_under.store(0, std::memory_order_relaxed);
  }
  return flushed;
}

Status MountCore::send_unlock(FileHandle& handle, const LockRequest& request,
                              const Caller& caller) {
  pb::LockRequest ask;
  ask.set_inode(handle.file->key.inode.value);
  put_lock(request, ask.mutable_lock());
  const Requests::Number number = sessions_.requests().begin(/*unique=*/0);
  pb::LockReply reply;
  return node_status(
      call(*handle.view, &MetaService::lock, ask, &reply, caller.unique, number.value()));
}

void MountCore::unlock_all(const Caller& caller, const std::shared_ptr<FileHandle>& handle,
                           const HeldLocks::Key& key) {
  const LockRequest all{.handle = 0, .owner = key.owner, .lock = whole(key.kind)};
  const Status done = unlock(handle, key, all, caller);
  if (!done.ok())
    SL_LOG(warn, "event=unlock_failed inode={} cause=\"{}\"", key.file.inode.value,
           done.to_string());
  (void)held_locks_.drop(key);
}

void MountCore::stop_waiting(std::uint64_t owner, std::uint64_t number) {
  pb::StopWaitingRequest request;
  Call header;
  header.session = sessions_.id();
  header.deadline = Deadline::after(kGiveUpPatience);
  request.set_session(header.session.value);
  request.set_owner(owner);
  request.set_wait(number);
  pb::Empty reply;
  // A server that does not hear of it forgets by itself whoever does not ask again.
  (void)sessions_.meta().stop_waiting(header, request, &reply);
}

}  // namespace starlane::client
