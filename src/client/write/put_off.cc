// Attributes that were set on a file with dirty bytes: they go with the commit of those, and stand
// in the ledger until then.
#include "client/blocks/patience.h"
#include "client/names/attributes.h"
#include "client/takeover/records.h"
#include "client/write/write_back.h"

namespace starlane::client {
namespace {

void merge(const SetStat& change, SetStat& into) {
  if (change.mode) into.mode = change.mode;
  if (change.uid) into.uid = change.uid;
  if (change.gid) into.gid = change.gid;
  if (change.atime) into.atime = change.atime;
  if (change.mtime) into.mtime = change.mtime;
}

}  // namespace

bool WriteBack::put_off(FileKey key, const SetStat& change) {
  const auto file = files_.find(key);
  const auto attachment = attachments_.attachment(key.branch);
  if (!file || !attachment.ok()) return false;
  MutexLock lock(file->m);
  // Bytes that take setuid away were written before; a commit may leave some of them for the next.
  if (!file->has_bytes() || file->committing || file->kill_privileges || !file->error.ok() ||
      file->attachment != *attachment)
    return false;
  SetStat set = file->set.value_or(SetStat());
  merge(change, set);
  if (options_.ledger != nullptr &&
      !options_.ledger->put_plain(set_key(*file), record_of(set)).ok())
    return false;
  file->set = set;
  file->ctime = system_clock().wall();
  if (change.mtime) {
    file->mtime = *change.mtime;
    file->mtime_given = true;
  }
  return true;
}

/// Committed, lost, or of a file that is gone.
void WriteBack::forget_set(DirtyFile& file) {
  if (!file.set) return;
  file.set.reset();
  if (options_.ledger != nullptr) options_.ledger->erase(set_key(file));
}

/// What is written after it counts.
void WriteBack::written_over_given_time(DirtyFile& file) {
  if (!file.set || !file.set->mtime) return;
  file.set->mtime.reset();
  if (options_.ledger != nullptr) options_.ledger->note_plain(set_key(file), record_of(*file.set));
}

/// Whose bytes could not be committed: programs were told that it is done.
void WriteBack::send_set(DirtyFile& file) {
  pb::SetAttributesRequest request;
  Attachment attachment;
  {
    MutexLock lock(file.m);
    if (!file.set || file.has_bytes() || file.committing) return;
    file.committing = true;
    attachment = file.attachment;
    *request.mutable_on() = commit_of(file.key, attachment).on();
    request.set_inode(file.key.inode.value);
    put_change(*file.set, &request);
  }
  const Interrupts::Scope scope(interrupts_, 0);
  Patience patience(scope, "setting attributes");
  Status status;
  do {
    Call call;
    call.session = attachment.session;
    call.attachment_epoch = attachment.epoch;
    call.deadline = try_deadline(patience.tries());
    pb::Attributes reply;
    status = meta_.set_attributes(call, request, &reply);
  } while (is_passing(status.code()) && patience.wait(status).ok());
  {
    MutexLock lock(file.m);
    if (!status.ok()) fail(file, for_application(status));
    if (!interrupts_.stopped()) forget_set(file);  // else the next daemon does it
    file.committing = false;
    file.changed.notify_all();
  }
  if (status.code() == Errc::fenced) fenced(file.key.branch, attachment);
}

}  // namespace starlane::client
