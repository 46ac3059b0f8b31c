#include "client/write/write_back.h"

#include <algorithm>

#include "client/blocks/patience.h"
#include "client/takeover/records.h"
#include "common/errno.h"

namespace starlane::client {
namespace {

constexpr Nanoseconds kOthersReturn = Milliseconds(500);
constexpr int kOthersTries = 6;

}  // namespace

WriteBack::WriteBack(MetaService& meta, BlockClient& blocks, Attachments& attachments,
                     Requests& requests, Interrupts& interrupts, std::shared_ptr<Arena> arena,
                     Listener& listener, const Options& options)
    : meta_(meta),
      blocks_(blocks),
      attachments_(attachments),
      requests_(requests),
      interrupts_(interrupts),
      arena_(std::move(arena)),
      listener_(listener),
      options_(options),
      commit_bytes_(std::max<std::uint64_t>(arena_->data_bytes() / 4, 1)),
      ids_(meta, [this](auto work) { return later(std::move(work)); }),
      files_(arena_),
      escrow_(meta, [this](BranchId branch) { return dirty_bytes_of(branch); }, {}),
      reclaim_(meta, {}),
      commit_pool_({"sl-commit", options.commit_threads, 4096}),
      put_pool_({"sl-put", options.put_threads, 4096}),
      background_([this] { run_background(); }) {
  if (options.taken_over) ++commits_;
}

WriteBack::~WriteBack() {
  SL_CHECK(interrupts_.stopped());
  background_.join();
}

bool WriteBack::later(std::function<void(const Interrupts::Scope&)> work) {
  const auto scoped = [this, work = std::move(work)] {
    const Interrupts::Scope scope(interrupts_, 0);
    work(scope);
  };
  return commit_pool_.try_submit(scoped).ok();
}

Status WriteBack::write(const FileIo::Write& request) {
  if (request.bytes.empty()) return {};
  const Attachment attachment = SL_TRY(attachments_.attachment(request.file.branch));
  const bool promised = promise_room(request, attachment);
  const auto file = files_.find_or_add(request.file);
  // Perhaps it takes no room, over data: then the server has the last word.
  Status written = promised ? write_promised(*file, request, attachment)
                            : write_alone(*file, request, attachment);
  escrow_.published(request.file.branch, request.bytes.size());
  return written;
}

/// False: the quota has no room for these bytes.
bool WriteBack::promise_room(const FileIo::Write& request, const Attachment& attachment) {
  const BranchId branch = request.file.branch;
  const std::uint64_t bytes = request.bytes.size();
  for (int tries = 0;; ++tries) {
    if (escrow_.promise(branch, attachment, bytes)) return true;
    if (tries > kOthersTries || (tries > 0 && !escrow_.others_hold(branch, bytes))) return false;
    escrow_.published(branch, bytes);
    if (tries == 0) {  // what was written over data holds room that it will not need
      static_cast<void>(flush_branch(branch, Safety::accepted));
    } else {  // they hear of it with their heartbeats, and return what they do not need
      const Interrupts::Scope scope(interrupts_, 0);
      static_cast<void>(scope.sleep(kOthersReturn));
    }
  }
}

void WriteBack::return_escrow(BranchId branch) {
  static_cast<void>(later([this, branch](const Interrupts::Scope&) { escrow_.give_back(branch); }));
}

std::uint64_t WriteBack::dirty_bytes_of(BranchId branch) {
  std::uint64_t bytes = 0;
  for (const auto& file : files_.all(branch)) {
    MutexLock lock(file->m);
    bytes += file->parts.bytes();
  }
  return bytes;
}

Status WriteBack::write_promised(DirtyFile& file, const FileIo::Write& request,
                                 const Attachment& attachment) {
  SL_TRY(begin_write(file, request, attachment));
  const std::uint32_t flags = request.kill_privileges ? ArenaRecord::kKillPrivileges : 0;
  ByteSpan rest = request.bytes;
  std::uint64_t offset = request.offset;
  while (!rest.empty()) {
    const std::uint64_t in_grid = kBlockSize - offset % kBlockSize;
    const ByteSpan piece = rest.first(std::min<std::uint64_t>(rest.size(), in_grid));
    SL_TRY(write_piece(file, offset, piece, flags));
    rest = rest.subspan(piece.size());
    offset += piece.size();
  }
  return {};
}

/// What is dirty under an attachment that has ended can never be committed.
Status WriteBack::begin_write(DirtyFile& file, const FileIo::Write& request,
                              const Attachment& attachment) {
  MutexLock lock(file.m);
  while (file.committing && file.attachment != attachment) file.changed.wait(file.m);
  if (file.is_dirty() && file.attachment != attachment) {
    fail(file, Status(Errc::io, "writes of an ended session were lost"));
    file.drop_all();
    forget_set(file);
  }
  // A full store is told at once: more would only be lost as well.
  if (file.error.code() == Errc::no_space || file.error.code() == Errc::quota) return file.error;
  file.attachment = attachment;
  file.committed_length =
      std::max(file.is_dirty() ? file.committed_length : 0, request.known.length);
  file.kill_privileges = file.kill_privileges || request.kill_privileges;
  return {};
}

/// Lies inside one block of the file's grid.
Status WriteBack::write_piece(DirtyFile& file, std::uint64_t offset, ByteSpan bytes,
                              std::uint32_t flags) {
  while (!bytes.empty()) {
    DirtyFile::Room room;
    SL_TRY(take_room(file, offset, bytes.size(), room));
    std::memcpy(room.memory->data() + room.memory_offset, bytes.data(), room.length);
    std::optional<std::uint32_t> record;
    if (!room.grows) SL_TRY(take_record(file, record));
    std::vector<PutJob> jobs;
    for (;;) {
      {
        MutexLock lock(file.m);
        if (file.publish(room, offset, record, flags)) {
          write_published(file, offset, jobs);
          break;
        }
      }
      SL_TRY(take_record(file, record));
    }
    if (record) arena_->give_record(*record);
    start(file.key, std::move(jobs));
    bytes = bytes.subspan(room.length);
    offset += room.length;
  }
  return {};
}

void WriteBack::write_published(DirtyFile& file, std::uint64_t offset, std::vector<PutJob>& jobs) {
  file.mtime = file.ctime = system_clock().wall();
  file.mtime_given = false;
  written_over_given_time(file);
  if (file.dirty_since == Nanoseconds(0)) file.dirty_since = system_clock().boot();
  if (!file.block_is_full(offset)) return;
  const std::uint64_t begin = round_down(offset, kBlockSize);
  file.freeze(begin, begin + kBlockSize, false, jobs);
}

Status WriteBack::take_room(DirtyFile& file, std::uint64_t offset, std::uint64_t bytes,
                            DirtyFile::Room& room) {
  for (;;) {
    std::uint64_t wanted = bytes;
    {
      MutexLock lock(file.m);
      room = file.claim(offset, bytes, &wanted);
    }
    if (room.grows) return {};
    room.memory = arena_->try_take(wanted);
    // Where there is no room for more than this write, the next one takes its own.
    if (!room.memory && wanted != bytes) room.memory = arena_->try_take(bytes);
    if (room.memory) {
      room.length = bytes;
      return {};
    }
    SL_TRY(make_room(file));
  }
}

Status WriteBack::take_record(DirtyFile& file, std::optional<std::uint32_t>& record) {
  while (!(record = arena_->try_take_record())) SL_TRY(make_room(file));
  return {};
}

/// Waits for memory; sees to it that some will come: what is put is committed, and when nothing is
/// on its way, everything leaves.
Status WriteBack::make_room(DirtyFile& file) {
  {
    MutexLock lock(file.m);
    if (file.error.code() == Errc::no_space || file.error.code() == Errc::quota) return file.error;
  }
  const bool idle = jobs_.load() == 0;
  for (const auto& other : files_.all()) {
    bool ready = false;
    {
      MutexLock lock(other->m);
      ready = other->ready_bytes != 0 && !other->queued;
    }
    if (idle) {
      queue_flush(other->key);
    } else if (ready) {
      static_cast<void>(commit_pool_.try_submit([this, key = other->key] { commit_ready(key); }));
    }
  }
  arena_->wait_for_room(Milliseconds(20));
  if (interrupts_.stopped()) return Status(Errc::interrupted, "the client stops");
  return {};
}

std::optional<DirtyState> WriteBack::dirty(FileKey key) {
  const auto file = files_.find(key);
  if (!file) return std::nullopt;
  MutexLock lock(file->m);
  if (!file->is_dirty()) return std::nullopt;
  return DirtyState{file->length,      file->parts.bytes(), file->mtime,
                    file->mtime_given, file->ctime,         file->set};
}

WriteBack::Shown WriteBack::show(FileKey key, std::uint64_t begin, std::uint64_t end) {
  Shown shown;
  const auto file = files_.find(key);
  if (!file) return shown;
  MutexLock lock(file->m);
  shown.length = file->length;
  file->parts.visit(begin, end, [&](std::uint64_t from, std::uint64_t to, const DirtyPart& part) {
    // Only the memory is held: the record goes with the commit, whoever still reads.
    shown.parts.push_back(
        {from, {ByteSpan(part.extent->data() + part.from, to - from), part.extent->memory}});
  });
  return shown;
}

void WriteBack::discard(FileKey key, std::uint64_t length) {
  const auto file = files_.find(key);
  if (!file) return;
  std::vector<std::shared_ptr<PendingSlice>> unused;
  {
    MutexLock lock(file->m);
    while (file->committing) file->changed.wait(file->m);
    file->cut(length, unused);
    file->committed_length = std::min(file->committed_length, length);
    if (length == 0) {
      static_cast<void>(take_failure(*file));
      forget_set(*file);
    }
    std::erase_if(unused,
                  [](const auto& slice) { return slice->in_flight != 0; });  // the last job does it
    file->changed.notify_all();
  }
  for (const auto& slice : unused) remove_blocks(*slice);
}

void WriteBack::lost(FileKey key, const Status& why) {
  const auto file = files_.find_or_add(key);
  MutexLock lock(file->m);
  fail(*file, why);
}

// A failure stands in the ledger before the bytes that it is of are forgotten, until it is told.

void WriteBack::fail(DirtyFile& file, const Status& why) {
  if (!file.error.ok()) return;
  file.error = why;
  if (options_.ledger == nullptr) return;
  options_.ledger->note_plain({Ledger::Kind::lost, file.key.branch.value, file.key.inode.value},
                              LostRecord{errno_of(why.code()), 0});
}

Status WriteBack::take_failure(DirtyFile& file) {
  if (!file.error.ok() && options_.ledger != nullptr)
    options_.ledger->erase({Ledger::Kind::lost, file.key.branch.value, file.key.inode.value});
  return std::exchange(file.error, {});
}

}  // namespace starlane::client
