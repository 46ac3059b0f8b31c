// What this daemon writes down for the next one, and what it takes over from the one before.
#include <algorithm>

#include "client/mount/call.h"
#include "client/open_flags.h"
#include "client/takeover/records.h"
#include "common/errno.h"
#include "common/log.h"

namespace starlane::client {
namespace {

/// The pages of a listing in progress, so that the next daemon goes on at the very name.
class PagesNoted final : public DirectoryPass::Observer {
 public:
  PagesNoted(Ledger& ledger, std::uint64_t handle) : ledger_(ledger), handle_(handle) {}

  void fetched(std::uint64_t first, const ListedPage& page) override {
    ledger_.note({Ledger::Kind::page, handle_, first}, encode(page));
  }
  void dropped(std::uint64_t first) override {
    ledger_.erase({Ledger::Kind::page, handle_, first});
  }

 private:
  Ledger& ledger_;
  const std::uint64_t handle_;
};

}  // namespace

// ---- For the next one ----

void MountCore::strike(const Ledger::Key& key) {
  if (options_.ledger != nullptr) options_.ledger->erase(key);
}

void MountCore::note_file(std::uint64_t id, const FileHandle& handle, std::uint64_t unique) {
  const FileRecord record{handle.node.pack(),
                          unique,
                          handle.flags,
                          static_cast<std::uint8_t>(handle.direct),
                          static_cast<std::uint8_t>(handle.passthrough),
                          0};
  note({Ledger::Kind::file, id}, record);
}

void MountCore::note_directory(std::uint64_t id, DirectoryHandle& handle, std::uint64_t unique) {
  if (options_.ledger == nullptr) return;
  const DirectoryRecord record{handle.node.pack(), unique};
  note({Ledger::Kind::directory, id}, record);
  handle.pass.observe(std::make_unique<PagesNoted>(*options_.ledger, id));
}

void MountCore::mark_unlinked(OpenFile& file, bool unlinked) {
  file.mark_unlinked(unlinked);
  const Ledger::Key key{Ledger::Kind::unlinked, file.key.branch.value, file.key.inode.value};
  if (!unlinked)
    strike(key);
  else if (file.open() && options_.ledger != nullptr)
    options_.ledger->note(key, ByteSpan());
}

std::optional<std::uint64_t> MountCore::append_noted(std::uint64_t unique) {
  if (!taken_over()) return std::nullopt;
  const auto value = options_.ledger->get({Ledger::Kind::append, unique});
  const auto record = value ? plain_of<AppendRecord>(*value) : std::nullopt;
  if (!record) return std::nullopt;
  return record->offset;
}

void MountCore::note_append(std::uint64_t unique, std::uint64_t offset) {
  note({Ledger::Kind::append, unique}, AppendRecord{offset});
}

void MountCore::answered(std::uint64_t unique) { strike({Ledger::Kind::append, unique}); }

// ---- From the one before ----

std::uint64_t MountCore::left_by(std::uint64_t unique) {
  const auto left = files_left_.find(unique);
  return left == files_left_.end() ? 0 : left->second;
}

/// Of a file that the daemon before had opened, the state is asked for when it first counts.
Result<FileState> MountCore::state_of(FileHandle& handle, std::uint64_t unique) {
  if (handle.file->heard_of()) return handle.file->state();
  const Believed<Attributes> found = SL_TRY(fetch(*handle.view, handle.file->key.inode, unique));
  handle.file->learn(found.value.state());
  return handle.file->state();
}

void MountCore::take_over() {
  const Nanoseconds started = now();
  const Views::Restored views = views_.restore();
  if (const auto listing = catalogue_.listing(options_.catalogue_age, 0); listing.ok())
    own_.list(kPublicInode, **listing);  // gives its directories their numbers again
  restore_files();
  restore_directories();
  restore_unlinked();
  restore_locks();
  for (const Ledger::Entry& entry : options_.ledger->all(Ledger::Kind::moved))
    if (const auto record = plain_of<MovedRecord>(entry.value))
      relooks_.told(static_cast<std::uint32_t>(entry.key.a), Nanoseconds(record->boot_ns));
  replay(views.broken);
  restore_set(views.broken);
  restore_losses();  // behind the replay: a file that is known to be full takes no writes
  SL_LOG(info, "event=taken_over generation={} views={} broken={} files={} directories={} ms={}",
         options_.ledger->generation(), views.views, views.broken.size(), files_left_.size(),
         directories_left_.size(),
         std::chrono::duration_cast<Milliseconds>(now() - started).count());
}

void MountCore::restore_files() {
  for (const Ledger::Entry& entry : options_.ledger->all(Ledger::Kind::file)) {
    const auto record = plain_of<FileRecord>(entry.value);
    const Node node = Node::unpack(record ? record->node : 0);
    View* view = views_.known(node.slot);
    if (!record || view == nullptr) continue;
    auto handle = std::make_shared<FileHandle>();
    handle->node = node;
    handle->view = view;
    handle->file = open_files_.get(view->file(node.inode));
    handle->flags = record->flags;
    handle->writer = writes(record->flags);
    handle->direct = record->direct != 0;
    handle->passthrough = record->passthrough != 0;
    handle->streams = io_.new_streams();
    handle->wrote = handle->writer;
    handle->file->opened(handle->writer);
    if (handle->direct) handle->file->note_direct(1);
    incarnations_.reopened(handle->file->key, node, handle->writer, handle->passthrough);
    files_.put(entry.key.a, std::move(handle));
    files_left_[record->unique] = entry.key.a;
  }
}

void MountCore::restore_directories() {
  for (const Ledger::Entry& entry : options_.ledger->all(Ledger::Kind::directory)) {
    const auto record = plain_of<DirectoryRecord>(entry.value);
    if (!record) continue;
    auto handle = std::make_shared<DirectoryHandle>();
    handle->node = Node::unpack(record->node);
    if (handle->node.slot != 0) handle->view = views_.known(handle->node.slot);
    if (handle->node.slot != 0 && handle->view == nullptr) continue;
    handle->pass.observe(std::make_unique<PagesNoted>(*options_.ledger, entry.key.a));
    directories_.put(entry.key.a, std::move(handle));
    directories_left_[record->unique] = entry.key.a;
  }
  for (const Ledger::Entry& entry : options_.ledger->all(Ledger::Kind::page)) {
    const auto handle = directories_.at(entry.key.a);
    auto page = decode_page(entry.value);
    if (handle.ok() && page)
      (*handle)->pass.restore(entry.key.b, *std::move(page));
    else
      options_.ledger->erase(entry.key);
  }
}

void MountCore::restore_unlinked() {
  for (const Ledger::Entry& entry : options_.ledger->all(Ledger::Kind::unlinked)) {
    const auto file = open_files_.find({BranchId(entry.key.a), InodeId(entry.key.b)});
    if (file)
      file->mark_unlinked(true);
    else
      options_.ledger->erase(entry.key);
  }
}

/// Nobody was told of them; a file that is closed by now has nobody to tell.
void MountCore::restore_losses() {
  for (const Ledger::Entry& entry : options_.ledger->all(Ledger::Kind::lost)) {
    const FileKey file{BranchId(entry.key.a), InodeId(entry.key.b)};
    const auto record = plain_of<LostRecord>(entry.value);
    if (record && open_files_.find(file))
      io_.lost(file, Status(errc_of(record->error_number), "writes were lost before a takeover"));
    else
      options_.ledger->erase(entry.key);
  }
}

/// With the bytes that were replayed, or alone: those may have been committed, and this with them,
/// which can be said again. Nobody else has changed the file: the lease was never given up.
void MountCore::restore_set(const std::vector<BranchId>& broken) {
  for (const Ledger::Entry& entry : options_.ledger->all(Ledger::Kind::set)) {
    const FileKey file{BranchId(entry.key.a), InodeId(entry.key.b)};
    View* view = views_.of(file.branch);
    const auto record = plain_of<SetRecord>(entry.value);
    const bool ended = std::find(broken.begin(), broken.end(), file.branch) != broken.end();
    if (record && view != nullptr && !view->attached->gone() && !ended) {
      const SetStat change = change_of(*record);
      if (io_.put_off(file, change)) continue;
      io_.push_out(file);
      const Status sent = send_attributes(*view, Caller(), file.inode, change).status();
      if (!sent.ok() && sent.code() != Errc::stale_handle) io_.lost(file, sent);
    }
    options_.ledger->erase(entry.key);
  }
}

/// The server goes on holding them for the session; their owners must find them when they close.
/// Those of an attachment that has ended meanwhile are known as lost.
void MountCore::restore_locks() {
  for (const LockKind kind : {LockKind::record, LockKind::flock}) {
    const auto noted =
        kind == LockKind::flock ? Ledger::Kind::flock_owner : Ledger::Kind::record_owner;
    for (const Ledger::Entry& entry : options_.ledger->all(noted)) {
      const auto handle = files_.at(entry.key.a);
      const auto record = plain_of<LockRecord>(entry.value);
      if (!handle.ok() || !record) {
        options_.ledger->erase(entry.key);
        continue;
      }
      const std::uint64_t under = record->attachment_epoch;
      held_locks_.granted({(*handle)->file->key, kind, entry.key.b}, entry.key.a, under);
      if (under != 0) (*handle)->locked_under.store(under, std::memory_order_relaxed);
    }
  }
}

/// Into another arena, and only then is the old one given up: killed in between, the next daemon
/// begins with the old one again. Nothing is served meanwhile, so nothing newer can be overwritten.
void MountCore::replay(const std::vector<BranchId>& broken) {
  if (options_.arena_left < 0) return;
  const auto replayed = replay_arena(options_.arena_left, [&](const ReplayedExtent& extent) {
    return replay_extent(extent, broken);
  });
  if (!replayed.ok())
    SL_LOG(error, "event=replay_failed cause=\"{}\"", replayed.status().to_string());
  else if (replayed->extents != 0)
    SL_LOG(info, "event=replayed extents={} bytes={}", replayed->extents, replayed->bytes);
  if (options_.replayed) options_.replayed();
}

/// What cannot be written again is told to those who wrote it, at their next flush.
Status MountCore::replay_extent(const ReplayedExtent& extent, const std::vector<BranchId>& broken) {
  View* view = views_.of(extent.file.branch);
  if (view == nullptr || view->attached->gone()) return {};
  if (std::find(broken.begin(), broken.end(), extent.file.branch) != broken.end()) {
    io_.lost(extent.file, Status(Errc::io, "writes of an ended session were lost"));
    incarnations_.remote_change(extent.file);  // a copy of the file has them
    return {};
  }
  const auto found = fetch(*view, extent.file.inode, 0);
  if (found.code() == Errc::stale_handle) return {};  // removed by another host
  Status status = found.status();
  if (found.ok())
    status = io_.write({.file = extent.file,
                        .known = found->value.state(),
                        .offset = extent.offset,
                        .bytes = extent.bytes,
                        .kill_privileges = extent.kill_privileges});
  if (!status.ok()) io_.lost(extent.file, status);
  return {};
}

}  // namespace starlane::client
