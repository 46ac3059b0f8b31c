#include "client/write/slice_ids.h"

#include "client/blocks/patience.h"

namespace starlane::client {
namespace {

constexpr std::uint32_t kBatch = 64;

}  // namespace

Result<SliceIds::Reserved> SliceIds::take(BranchId branch, const Attachment& attachment,
                                          const Interrupts::Scope& scope) {
  for (;;) {
    {
      MutexLock lock(m_);
      Batch& batch = batches_[branch];
      while (batch.asking) arrived_.wait(m_);
      const bool usable = batch.next < batch.end && batch.attachment == attachment;
      if (usable) return Reserved{SliceId(batch.next++), batch.batch};
      batch.asking = true;
    }
    Batch fresh;
    const Status status = reserve(branch, attachment, fresh, scope);
    MutexLock lock(m_);
    Batch& batch = batches_[branch];  // references into the map stay good
    batch.asking = false;
    if (status.ok()) batch = fresh;
    arrived_.notify_all();
    if (!status.ok()) return status;
  }
}

Status SliceIds::reserve(BranchId branch, const Attachment& attachment, Batch& batch,
                         const Interrupts::Scope& scope) {
  pb::ReserveSlicesRequest request;
  request.set_session(attachment.session.value);
  request.set_branch(branch.value);
  request.set_count(kBatch);
  pb::ReserveSlicesReply reply;
  SL_TRY(with_patience(scope, "reserve slices", [&] {
    Call call;
    call.session = attachment.session;
    call.attachment_epoch = attachment.epoch;
    call.deadline = try_deadline(0);
    reply.Clear();
    return meta_.reserve_slices(call, request, &reply);
  }));
  if (reply.count() == 0 || reply.first() == 0)
    return Status(Errc::protocol, "a reservation of no slices");
  batch = {attachment, reply.batch(), reply.first(), reply.first() + reply.count(), false};
  return {};
}

}  // namespace starlane::client
