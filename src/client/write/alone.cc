// Writes that pass the arena by and are committed alone: appends whose place the server says, and
// what no quota has promised room for, so that its refusal takes nothing else with it.
#include <algorithm>

#include "client/write/write_back.h"

namespace starlane::client {

/// At most 4 MiB, as one slice of one block, stored; where it lies in the file is not said yet.
Result<pb::NewSlice> WriteBack::put_slice(FileKey file, ByteSpan bytes,
                                          const Attachment& attachment,
                                          const Interrupts::Scope& scope) {
  const auto reserved = SL_TRY(ids_.take(file.branch, attachment, scope));
  const BlockId block{file.branch, reserved.slice, 0};
  for (;;) {
    const auto epoch =
        blocks_.put({block, options_.layout, attachment.session, attachment.epoch, {bytes}}, scope);
    if (epoch.code() == Errc::no_space && reclaim_.worth_another_try(file.branch, scope)) continue;
    if (!epoch.ok()) return epoch.status();
    pb::NewSlice slice;
    slice.set_batch(reserved.batch);
    pb::SliceEntry& entry = *slice.mutable_entry();
    entry.set_kind(pb::SliceEntry::DATA);
    entry.set_length(static_cast<std::uint32_t>(bytes.size()));
    entry.set_slice_length(entry.length());
    entry.set_slice(reserved.slice.value);
    entry.set_owner(file.branch.value);
    entry.set_layout(options_.layout);
    entry.set_placement_epoch(*epoch);
    return slice;
  }
}

Result<std::uint64_t> WriteBack::append(const FileIo::Write& request, Safety safety) {
  if (request.bytes.size() > kBlockSize)
    return Status(Errc::invalid, "an append has at most 4 MiB");
  // What this host wrote before comes first.
  SL_TRY(flush(request.file, Safety::accepted));
  const Attachment attachment = SL_TRY(attachments_.attachment(request.file.branch));
  const Interrupts::Scope scope(interrupts_, 0);
  const pb::NewSlice slice = SL_TRY(put_slice(request.file, request.bytes, attachment, scope));
  const auto number = requests_.begin(request.unique);
  pb::CommitRequest commit = commit_of(request.file, attachment);
  commit.mutable_on()->set_request(number.value());
  commit.set_append(true);
  commit.set_kill_privileges(request.kill_privileges);
  *commit.add_slices() = slice;
  pb::CommitReply reply;
  const Status status = this->commit(commit, attachment, safety, &reply);
  if (status.code() == Errc::fenced) {
    fenced(request.file.branch, attachment);
    return Status(Errc::io, "an append of an ended session was lost");
  }
  if (!status.ok()) return status;
  // Where it went is the server's word: the map is read again.
  listener_.committed(request.file, reply, {});
  return reply.appended_at();
}

/// What was written before it goes first. What is written beside it may come before or after it.
Status WriteBack::write_alone(DirtyFile& file, const FileIo::Write& request,
                              const Attachment& attachment) {
  SL_TRY(begin_write(file, request, attachment));
  commit_through(file, begin_flush(file), Safety::accepted);
  pb::CommitRequest commit = commit_of(file.key, attachment);
  commit.set_length(request.offset + request.bytes.size());
  commit.set_kill_privileges(request.kill_privileges);
  const WallTime now = system_clock().wall();
  commit.mutable_mtime()->set_seconds(now.seconds);
  commit.mutable_mtime()->set_nanoseconds(now.nanoseconds);
  const Interrupts::Scope scope(interrupts_, 0);
  std::uint64_t offset = request.offset;
  for (ByteSpan rest = request.bytes; !rest.empty();) {
    const ByteSpan piece =
        rest.first(std::min<std::uint64_t>(rest.size(), kBlockSize - offset % kBlockSize));
    pb::NewSlice& slice = *commit.add_slices();
    slice = SL_TRY(put_slice(file.key, piece, attachment, scope));
    slice.set_chunk(static_cast<std::uint32_t>(offset / kChunkSize));
    slice.mutable_entry()->set_position(static_cast<std::uint32_t>(offset % kChunkSize));
    rest = rest.subspan(piece.size());
    offset += piece.size();
  }
  return commit_alone(file, commit, attachment);
}

/// In order with the other commits of the file.
Status WriteBack::commit_alone(DirtyFile& file, const pb::CommitRequest& request,
                               const Attachment& attachment) {
  {
    MutexLock lock(file.m);
    while (file.committing) file.changed.wait(file.m);
    file.committing = true;
  }
  pb::CommitReply reply;
  const Status status = commit(request, attachment, Safety::accepted, &reply);
  if (status.ok())
    listener_.committed(file.key, reply, {request.slices().begin(), request.slices().end()});
  {
    MutexLock lock(file.m);
    if (status.ok()) file.committed_length = reply.attributes().length();
    file.committing = false;
    file.changed.notify_all();
  }
  if (status.code() == Errc::fenced) fenced(file.key.branch, attachment);
  if (nothing_happened(status)) {
    for (const pb::NewSlice& slice : request.slices())
      remove_blocks(file.key.branch, SliceId(slice.entry().slice()));
  }
  return status.ok() ? status : for_application(status);
}

}  // namespace starlane::client
