// Flushes and commits: everything loose is put, slices are committed in order, and what is
// committed becomes durable.
#include <algorithm>

#include "client/blocks/patience.h"
#include "client/names/attributes.h"
#include "client/write/write_back.h"
#include "common/batch.h"
#include "common/log.h"

namespace starlane::client {
namespace {

constexpr std::size_t kSlicesPerCommit = 256;
constexpr int kStaleTries = 20;

void set_time(WallTime from, pb::Time* to) {
  to->set_seconds(from.seconds);
  to->set_nanoseconds(from.nanoseconds);
}

void set_slice(const PendingSlice& from, FileKey file, std::uint32_t layout, pb::NewSlice* to) {
  to->set_chunk(static_cast<std::uint32_t>(from.begin / kChunkSize));
  to->set_batch(from.batch);
  pb::SliceEntry& entry = *to->mutable_entry();
  entry.set_position(static_cast<std::uint32_t>(from.begin % kChunkSize));
  entry.set_length(static_cast<std::uint32_t>(from.length));
  entry.set_slice(from.id.value);
  entry.set_owner(file.branch.value);
  entry.set_slice_length(static_cast<std::uint32_t>(from.stored));
  entry.set_placement_epoch(from.placement_epoch);
  if (from.blocks != 0) {
    entry.set_kind(pb::SliceEntry::DATA);
    entry.set_layout(layout);
  } else {
    entry.set_kind(pb::SliceEntry::INLINE);
    entry.set_inline_data(from.inline_data);
  }
}

}  // namespace

Status WriteBack::for_application(const Status& status) {
  switch (status.code()) {
    case Errc::no_space:
    case Errc::quota:
    case Errc::file_too_large:
    case Errc::read_only:
    case Errc::not_permitted:
      return status;
    case Errc::fenced:
      return Status(Errc::io, "writes were lost: the server had ended the session");
    default:
      return Status(Errc::io, "writes were lost: " + status.to_string());
  }
}

bool WriteBack::nothing_happened(const Status& status) {
  return status.code() == Errc::quota || status.code() == Errc::file_too_large ||
         status.code() == Errc::too_big;
}

pb::CommitRequest WriteBack::commit_of(FileKey file, const Attachment& attachment) {
  pb::CommitRequest request;
  request.mutable_on()->set_session(attachment.session.value);
  request.mutable_on()->set_branch(file.branch.value);
  request.mutable_on()->set_attachment_epoch(attachment.epoch);
  request.set_inode(file.inode.value);
  return request;
}

Status WriteBack::flush(FileKey key, Safety safety, Told told) {
  const auto file = files_.find(key);
  if (file) SL_TRY(finish_flush(*file, begin_flush(*file), safety, told));
  if (safety == Safety::durable && commits_.load() > durable_.load()) return make_durable();
  return {};
}

Status WriteBack::flush_branch(BranchId branch, Safety safety) {
  const auto files = files_.all(branch);
  std::vector<std::uint64_t> through;
  for (const auto& file : files) through.push_back(begin_flush(*file));
  // Commits of different files wait for the server side by side.
  constexpr std::size_t kAtOnce = 8;
  Batch batch;
  std::atomic<std::size_t> next{0};  // which file is next: order does not matter
  const auto work = [&] {
    Status first;
    for (std::size_t i = next++; i < files.size(); i = next++) {
      Status status = finish_flush(*files[i], through[i], Safety::accepted, Told::kept);
      if (first.ok()) first = std::move(status);
    }
    batch.done(first);
  };
  const std::size_t workers = std::min(kAtOnce, divide_up(files.size(), 4));
  batch.expect(workers);
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < workers; ++i) threads.emplace_back(work);
  if (workers != 0) work();
  Status status = batch.wait();
  for (std::thread& thread : threads) thread.join();
  if (status.ok() && safety == Safety::durable && commits_.load() > durable_.load())
    status = make_durable();
  return status;
}

/// Everything loose is on its way; answers the last slice of it.
std::uint64_t WriteBack::begin_flush(DirtyFile& file) {
  std::vector<PutJob> jobs;
  std::uint64_t through = 0;
  {
    MutexLock lock(file.m);
    file.freeze_all(jobs);
    through = file.next_number - 1;
  }
  if (jobs.size() == 1) {  // for one job, a switch to the pool costs more than it gives
    ++jobs_;
    run(file, jobs[0]);
    --jobs_;
  } else {
    start(file.key, std::move(jobs));
  }
  return through;
}

Status WriteBack::finish_flush(DirtyFile& file, std::uint64_t through, Safety safety, Told told) {
  commit_through(file, through, safety);
  MutexLock lock(file.m);
  if (told == Told::once) return take_failure(file);
  return file.error;
}

/// Returns when no slice up to `through` is pending: committed, failed or dropped.
void WriteBack::commit_through(DirtyFile& file, std::uint64_t through, Safety safety) {
  commit_slices(file, through, safety);
  send_set(file);
}

void WriteBack::commit_slices(DirtyFile& file, std::uint64_t through, Safety safety) {
  for (;;) {
    std::vector<std::shared_ptr<PendingSlice>> slices;
    pb::CommitRequest request;
    Attachment attachment;
    {
      MutexLock lock(file.m);
      for (;;) {
        if (file.settled_through(through)) return;
        if (!file.committing) slices = gather(file, through);
        if (!slices.empty()) break;
        if (!file.settled_through(through)) file.changed.wait(file.m);
      }
      file.committing = true;
      request = request_for(file, slices);
      attachment = slices.front()->attachment;
    }
    pb::CommitReply reply;
    const Status status = commit(request, attachment, safety, &reply);
    if (status.ok()) {
      listener_.committed(file.key, reply, {request.slices().begin(), request.slices().end()});
    }
    {
      MutexLock lock(file.m);
      settle(file, slices, status, reply);
      if (request.has_set() && (status.ok() || status.code() == Errc::fenced)) forget_set(file);
      file.committing = false;
      file.changed.notify_all();
    }
    if (status.code() == Errc::fenced) fenced(file.key.branch, attachment);
  }
}

/// The slices at the front that are wholly put; those that failed are dropped on the way.
std::vector<std::shared_ptr<PendingSlice>> WriteBack::gather(DirtyFile& file,
                                                             std::uint64_t through) {
  std::vector<std::shared_ptr<PendingSlice>> slices;
  for (std::size_t i = 0; i < file.slices.size() && slices.size() < kSlicesPerCommit;) {
    const auto slice = file.slices[i];
    if (slice->number > through || slice->in_flight != 0) break;
    if (slice->failure.ok()) {
      slice->closed = true;
      slices.push_back(slice);
      ++i;
      continue;
    }
    fail(file, for_application(slice->failure));
    file.drop(slice);
    remove_blocks(*slice);
    file.changed.notify_all();
  }
  return slices;
}

pb::CommitRequest WriteBack::request_for(DirtyFile& file,
                                         const std::vector<std::shared_ptr<PendingSlice>>& slices) {
  const Attachment& attachment = slices.front()->attachment;
  pb::CommitRequest request = commit_of(file.key, attachment);
  std::uint64_t length = 0;
  for (const auto& slice : slices) {
    set_slice(*slice, file.key, options_.layout, request.add_slices());
    length = std::max(length, slice->begin + slice->length);
  }
  request.set_length(length);
  set_time(file.mtime, request.mutable_mtime());
  request.set_kill_privileges(file.kill_privileges);
  if (file.set) put_change(*file.set, request.mutable_set());
  return request;
}

/// Once, whatever becomes of the answers: the slices' bits say whether it happened.
Status WriteBack::commit(const pb::CommitRequest& request, const Attachment& attachment,
                         Safety safety, pb::CommitReply* reply) {
  const Interrupts::Scope scope(interrupts_, 0);
  const std::uint64_t before = commits_.load();
  pb::CommitRequest sent = request;
  if (safety == Safety::durable) {
    SL_TRY(blocks_.sync(scope));
    sent.set_durable(true);
  }
  Patience patience(scope, "commit");
  Status status;
  for (int stale = 0;;) {
    Call call;
    call.session = attachment.session;
    call.attachment_epoch = attachment.epoch;
    call.deadline = try_deadline(patience.tries());
    reply->Clear();
    status = meta_.commit(call, sent, reply);
    const bool again =
        is_passing(status.code()) || (status.code() == Errc::stale && ++stale < kStaleTries);
    if (!again) break;
    SL_TRY(patience.wait(status));
  }
  if (!status.ok()) return status;
  session_ = attachment.session.value;
  if (safety == Safety::accepted) {
    ++commits_;
  } else {  // the engine's log is one: what came before is durable too
    std::uint64_t known = durable_.load();
    while (known < before && !durable_.compare_exchange_weak(known, before)) {
    }
  }
  return status;
}

/// After the outcome of a commit: what it named is no longer dirty.
void WriteBack::settle(DirtyFile& file, const std::vector<std::shared_ptr<PendingSlice>>& slices,
                       const Status& status, const pb::CommitReply& reply) {
  if (!status.ok()) fail(file, for_application(status));
  std::uint64_t bytes = 0;
  for (const auto& slice : slices) {
    if (slice->blocks != 0) bytes += slice->stored;
    file.drop(slice);
    if (nothing_happened(status)) remove_blocks(*slice);
  }
  file.ready_bytes = file.slices.empty() ? 0 : file.ready_bytes - std::min(file.ready_bytes, bytes);
  if (!status.ok()) return;
  file.committed_length = reply.attributes().length();
  if (!file.is_dirty()) file.kill_privileges = false;
}

/// What is put is committed without a flush, so that its memory can be used again.
void WriteBack::commit_ready(FileKey key) {
  const auto file = files_.find(key);
  if (!file) return;
  std::uint64_t through = 0;
  {
    MutexLock lock(file->m);
    if (file->committing) return;
    for (const auto& slice : file->slices) {
      if (slice->in_flight != 0) break;
      through = slice->number;
    }
  }
  if (through != 0) commit_through(*file, through, Safety::accepted);
}

Status WriteBack::make_durable() {
  const Interrupts::Scope scope(interrupts_, 0);
  const std::uint64_t before = commits_.load();
  SL_TRY(blocks_.sync(scope));
  pb::FlushRequest request;
  request.set_session(session_.load());
  SL_TRY(with_patience(scope, "metadata flush", [&] {
    Call call;
    call.session = SessionId(session_.load());
    call.deadline = try_deadline(0);
    pb::Empty reply;
    return meta_.flush(call, request, &reply);
  }));
  std::uint64_t known = durable_.load();
  while (known < before && !durable_.compare_exchange_weak(known, before)) {
  }
  return {};
}

void WriteBack::run_background() {
  name_this_thread("sl-writeback");
  const Interrupts::Scope scope(interrupts_, 0);
  Nanoseconds last_durable = system_clock().boot();
  while (scope.sleep(Milliseconds(100)).ok()) {
    const Nanoseconds now = system_clock().boot();
    flush_old(now);
    escrow_.tick(now);
    if (now - last_durable < options_.durable_every) continue;
    last_durable = now;
    if (commits_.load() == durable_.load()) continue;
    const Status status = make_durable();
    if (!status.ok() && status.code() != Errc::interrupted) {
      SL_LOG(error, "event=not_durable reason=\"{}\"", status.to_string());
    }
  }
}

void WriteBack::flush_old(Nanoseconds now) {
  for (const auto& file : files_.all()) {
    bool old = false;
    {
      MutexLock lock(file->m);
      old = (file->dirty_since != Nanoseconds(0) && now - file->dirty_since > options_.dirty_age);
    }
    if (old) queue_flush(file->key);
  }
}

/// In the background; the outcome stays with the file, for the application's next flush.
void WriteBack::queue_flush(FileKey key) {
  const auto file = files_.find(key);
  if (!file) return;
  {
    MutexLock lock(file->m);
    if (file->queued) return;
    file->queued = true;
  }
  const auto work = [this, key] {
    const auto queued = files_.find(key);
    if (!queued) return;
    if (!interrupts_.stopped()) commit_through(*queued, begin_flush(*queued), Safety::accepted);
    MutexLock lock(queued->m);
    queued->queued = false;
  };
  if (commit_pool_.try_submit(work).ok()) return;
  MutexLock lock(file->m);
  file->queued = false;
}

}  // namespace starlane::client
