// Reading, writing and the levels of safety.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "client/mount/call.h"

namespace starlane::client {
namespace {

constexpr std::uint64_t kMaxLength = std::uint64_t{1} << 58;  // the server refuses more, but later

/// Whoever works under a lock must not go on without it.
Status check_locks(const FileHandle& handle) {
  const std::uint64_t under = handle.locked_under.load(std::memory_order_relaxed);
  if (under == 0 || under == handle.view->attached->locks_epoch()) return {};
  return {Errc::io, "a lock held through this open file was lost with its session"};
}

}  // namespace

Result<std::vector<Piece>> MountCore::read(const Caller& caller, std::uint64_t id,
                                           std::uint64_t offset, std::uint32_t length) {
  if (is_tree_handle(id)) return read_tree_file(caller, id, offset, length);
  const std::shared_ptr<FileHandle> handle = SL_TRY(files_.at(id));
  SL_TRY(check_locks(*handle));
  const FileState state = SL_TRY(state_of(*handle, caller.unique));
  if (!handle->view->frozen() && io_.dirty(handle->file->key))
    return io_.read(handle->file->key, state, offset, length, handle->streams.get(), caller.unique);
  if (auto piece = incarnations_.peek(handle->file->key, state, offset, length)) {
    std::vector<Piece> pieces;
    pieces.push_back(*std::move(piece));
    return pieces;
  }
  return io_.read(handle->file->key, state, offset, length, handle->streams.get(), caller.unique);
}

Result<std::uint64_t> MountCore::read_into(const Caller& caller, std::uint64_t id,
                                           std::uint64_t offset, MutableByteSpan out) {
  const std::shared_ptr<FileHandle> handle = SL_TRY(files_.at(id));
  SL_TRY(check_locks(*handle));
  return io_.read_into(handle->file->key, handle->file->state(), offset, out, caller.unique);
}

// ---- Writing ----

Status MountCore::write_here(FileHandle& handle, const FileIo::Write& request) {
  SL_TRY(io_.write(request));
  handle.wrote.store(true, std::memory_order_relaxed);
  incarnations_.local_write(request.file, request.offset, request.bytes);
  return {};
}

Result<std::uint64_t> MountCore::append(FileHandle& handle, FileIo::Write request,
                                        const WriteOptions& options) {
  OpenFile& file = *handle.file;
  Turn::Alone turn(file.turn);
  request.known = SL_TRY(state_of(handle, request.unique));
  if (const auto noted = append_noted(request.unique)) {  // sent again: to where it went before
    request.offset = *noted;
    SL_TRY(write_here(handle, request));
    return request.offset;
  }
  if (const auto alone = handle.view->attached->rely(now())) {
    const auto dirty = io_.dirty(file.key);
    request.known = file.state();
    request.offset = std::max(request.known.length, dirty ? dirty->length : 0);
    note_append(request.unique, request.offset);
    SL_TRY(write_here(handle, request));
    return request.offset;
  }
  // What this host wrote before lies before it.
  io_.push_out(file.key);
  request.known = file.state();
  const Safety safety = options.synchronous ? Safety::durable : Safety::accepted;
  const std::uint64_t at = SL_TRY(io_.append(request, safety));
  incarnations_.local_write(file.key, at, request.bytes);
  return at;
}

Result<std::uint32_t> MountCore::write(const Caller& caller, std::uint64_t id, std::uint64_t offset,
                                       ByteSpan bytes, const WriteOptions& options) {
  const std::shared_ptr<FileHandle> handle = SL_TRY(files_.at(id));
  if (handle->view->frozen()) return {Errc::read_only, "a published data set cannot be changed"};
  SL_TRY(check_locks(*handle));
  // The kernel writes a shared mapping back through any handle that it has.
  if (!handle->writer && !options.from_page_cache)
    return {Errc::bad_handle, "not open for writing"};
  if (offset > kMaxLength || bytes.size() > kMaxLength - offset)
    return {Errc::file_too_large, "a file has at most 2^58 bytes"};
  if (options.kill_privileges) SL_TRY(drop_privileges(caller, *handle));
  if (handle->direct) SL_TRY(drop_capabilities(caller, *handle));
  FileIo::Write request{.file = handle->file->key, .known = {}, .offset = offset, .bytes = bytes};
  request.kill_privileges = options.kill_privileges;
  request.unique = caller.unique;
  std::uint64_t written_at = offset;
  if (options.append && !options.from_page_cache) {
    written_at = SL_TRY(append(*handle, request, options));
  } else {
    Turn::Shared turn(handle->file->turn);
    request.known = SL_TRY(state_of(*handle, caller.unique));
    SL_TRY(write_here(*handle, request));
  }
  overwritten(*handle, offset, written_at, bytes.size());
  if (options.synchronous) SL_TRY(settle(caller, *handle));
  return static_cast<std::uint32_t>(bytes.size());
}

void MountCore::overwritten(FileHandle& handle, std::uint64_t kernel_offset, std::uint64_t offset,
                            std::uint64_t length) {
  const Node plain{handle.view->slot, 0, handle.file->key.inode};
  if (handle.direct) {
    // Pages that a reader through the page cache has filled meanwhile.
    if (!handle.file->open_cached()) return;
    notifier_->invalidate_inode(plain, static_cast<std::int64_t>(offset),
                                static_cast<std::int64_t>(length));
    return;
  }
  if (kernel_offset == offset) return;
  // The kernel put the bytes where it thought the end was; the pages are locked until this write is
  // answered.
  nodes_.set_pages(plain, 0);
  later([plain](KernelNotifier& kernel) { kernel.invalidate_inode(plain, 0, 0); });
}

Status MountCore::drop_privileges(const Caller& caller, FileHandle& handle) {
  const InodeId inode = handle.file->key.inode;
  send_put_off(handle.file->key);
  const Believed<Attributes> believed = SL_TRY(fetch(*handle.view, inode, caller.unique));
  if ((believed.value.mode & (S_ISUID | S_ISGID)) == 0) return {};
  SetStat change;
  change.kill_privileges = true;
  SL_TRY(send_attributes(*handle.view, caller, inode, change));
  notifier_->invalidate_inode(handle.node, -1, 0);
  return {};
}

/// What the kernel does before it writes into pages of its own, and only then.
Status MountCore::drop_capabilities(const Caller& caller, FileHandle& handle) {
  constexpr std::string_view kCapabilities = "security.capability";
  const InodeId inode = handle.file->key.inode;
  if (!SL_TRY(fetch(*handle.view, inode, caller.unique)).value.has_xattrs) return {};
  const NameCache::Xattrs names = SL_TRY(xattr_names(*handle.view, inode, caller.unique));
  if (std::find(names->begin(), names->end(), kCapabilities) == names->end()) return {};
  Caller own = caller;
  own.unique = 0;  // the request's number is the write's
  const Status removed = remove_xattr(own, handle.node, kCapabilities);
  return removed.code() == Errc::no_attribute ? Status() : removed;
}

// ---- Levels of safety ----

Status MountCore::flush(const Caller& caller, std::uint64_t id, std::uint64_t owner) {
  const std::shared_ptr<FileHandle> handle = SL_TRY(files_.at(id));
  Status flushed = handle->writer ? io_.flush(handle->file->key, Safety::accepted) : Status();
  const HeldLocks::Key key{handle->file->key, LockKind::record, owner};
  if (held_locks_.find(key)) unlock_all(caller, handle, key);
  return flushed;
}

Status MountCore::settle(const Caller& caller, FileHandle& handle) {
  SL_TRY(io_.flush(handle.file->key, Safety::durable));
  return meta_flush(caller);
}

Status MountCore::fsync(const Caller& caller, std::uint64_t id, bool) {
  const std::shared_ptr<FileHandle> handle = SL_TRY(files_.at(id));
  if (handle->view->frozen()) return {};
  return settle(caller, *handle);
}

}  // namespace starlane::client
