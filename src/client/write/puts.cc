// How blocks leave the arena: slice ids, puts on the pool, and what becomes of a slice when its
// puts are done.
#include "client/write/write_back.h"

#include "client/blocks/patience.h"
#include "common/log.h"

namespace starlane::client {

void WriteBack::start(FileKey key, std::vector<PutJob> jobs) {
  for (PutJob& job : jobs) {
    ++jobs_;
    // The reference keeps the file, not its key: under that there may be another one by then.
    put_pool_.submit(
        [this, file = std::make_shared<DirtyFiles::Ref>(files_.find(key)), job = std::move(job)] {
          run(**file, job);
          --jobs_;
        });
  }
}

void WriteBack::run(DirtyFile& file, const PutJob& job) {
  const Interrupts::Scope scope(interrupts_, 0);
  job_done(file, job, put(file, job, scope));
}

Result<std::uint64_t> WriteBack::put(DirtyFile& file, const PutJob& job,
                                     const Interrupts::Scope& scope) {
  {
    MutexLock lock(file.m);
    if (job.slice->dropped) return std::uint64_t{0};
    if (!job.slice->failure.ok()) return job.slice->failure;
  }
  SL_TRY(reserve(file, job, scope));
  if (job.pieces.empty()) return std::uint64_t{0};  // inline
  const PendingSlice& slice = *job.slice;
  const BlockId block{file.key.branch, slice.id, job.index};
  for (;;) {
    auto done = blocks_.put(
        {block, options_.layout, slice.attachment.session, slice.attachment.epoch, job.pieces},
        scope);
    const bool full = done.code() == Errc::no_space;
    if (!full || !reclaim_.worth_another_try(file.key.branch, scope)) return done;
  }
}

/// The slice has an id afterwards; whichever of its jobs comes first gets it.
Status WriteBack::reserve(DirtyFile& file, const PutJob& job, const Interrupts::Scope& scope) {
  PendingSlice& slice = *job.slice;
  {
    MutexLock lock(file.m);
    while (slice.reserving) file.changed.wait(file.m);
    if (slice.id) {
      note_slice(job);
      return {};
    }
    slice.reserving = true;
  }
  const auto reserved = ids_.take(file.key.branch, slice.attachment, scope);
  MutexLock lock(file.m);
  slice.reserving = false;
  file.changed.notify_all();
  if (!reserved.ok()) return reserved.status();
  slice.id = reserved->slice;
  slice.batch = reserved->batch;
  note_slice(job);
  return {};
}

void WriteBack::note_slice(const PutJob& job) {
  for (const auto& extent : job.extents) {
    if (extent->recorded) arena_->set_record_slice(extent->record, job.slice->id.value);
  }
}

void WriteBack::job_done(DirtyFile& file, const PutJob& job, const Result<std::uint64_t>& outcome) {
  bool remove = false, commit = false, was_fenced = false;
  {
    MutexLock lock(file.m);
    PendingSlice& slice = *job.slice;
    --slice.in_flight;
    if (outcome.ok()) {
      if (slice.placement_epoch == 0) slice.placement_epoch = *outcome;
      for (const ByteSpan piece : job.pieces) file.ready_bytes += slice.dropped ? 0 : piece.size();
    } else if (slice.failure.ok()) {
      slice.failure = outcome.status();
      slice.closed = true;
    }
    remove = slice.dropped && slice.in_flight == 0 && slice.id;
    was_fenced = outcome.code() == Errc::fenced && !slice.dropped;
    commit = file.ready_bytes >= commit_bytes_ && !file.committing;
    file.changed.notify_all();
  }
  if (remove) remove_blocks(*job.slice);
  if (was_fenced) fenced(file.key.branch, job.slice->attachment);
  if (commit)
    static_cast<void>(commit_pool_.try_submit([this, key = file.key] { commit_ready(key); }));
}

void WriteBack::remove_blocks(const PendingSlice& slice) {
  if (slice.id && slice.blocks != 0) remove_blocks(slice.owner, slice.id);
}

/// Best effort, off the caller's path: a slice that is never committed goes with the session at the
/// latest.
void WriteBack::remove_blocks(BranchId owner, SliceId slice) {
  if (interrupts_.stopped()) return;
  static_cast<void>(commit_pool_.try_submit([this, owner, slice] {
    const Interrupts::Scope scope(interrupts_, 0);
    blocks_.remove(owner, slice, options_.layout, scope);
  }));
}

/// Nothing that was written under the attachment will be committed: every file of it is told, once.
void WriteBack::fenced(BranchId branch, const Attachment& attachment) {
  attachments_.fenced(branch, attachment);
  for (const auto& file : files_.all(branch)) {
    MutexLock lock(file->m);
    if (file->attachment != attachment || !file->is_dirty()) continue;
    while (file->committing) file->changed.wait(file->m);
    if (file->attachment != attachment || !file->is_dirty()) continue;
    fail(*file, Status(Errc::io, "writes were lost: the server had ended the session"));
    file->drop_all();
    forget_set(*file);
    file->changed.notify_all();
  }
}

}  // namespace starlane::client
