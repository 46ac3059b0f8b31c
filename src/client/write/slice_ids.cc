#include "client/write/slice_ids.h"

#include "client/blocks/patience.h"

namespace starlane::client {
namespace {

constexpr std::uint32_t kBatch = 64;
constexpr std::uint64_t kLow = kBatch / 2;  // so few left: the next reservation is asked for

}  // namespace

Result<SliceIds::Reserved> SliceIds::take(BranchId branch, const Attachment& attachment,
                                          const Interrupts::Scope& scope) {
  for (;;) {
    {
      MutexLock lock(m_);
      Branch& of = branches_[branch];  // references into the map stay good
      const auto have = [&] { return of.now.serves(attachment) || of.spare.serves(attachment); };
      while (!have() && of.asking) arrived_.wait(m_);
      if (have()) {
        if (!of.now.serves(attachment)) of.now = std::exchange(of.spare, {});
        const Reserved reserved{SliceId(of.now.next++), of.now.batch};
        const bool low = of.now.end - of.now.next <= kLow && !of.spare.serves(attachment);
        if (!low || of.asking || std::exchange(of.queued, true)) return reserved;
        m_.unlock();
        ask_ahead(branch, attachment);
        m_.lock();
        return reserved;
      }
      of.asking = true;
    }
    Result<Batch> fresh = Status(Errc::unavailable, "nobody was asked yet");
    const Status status = with_patience(scope, "reserve slices", [&] {
      fresh = reserve(branch, attachment);
      return fresh.status();
    });
    arrived(branch, status.ok() ? std::move(fresh) : Result<Batch>(status));
    if (!status.ok()) return status;
  }
}

/// One try: who comes to need it and does not find it asks again, with patience. Nobody waits for
/// it before it runs: all threads that could run it may be among those who need it.
void SliceIds::ask_ahead(BranchId branch, const Attachment& attachment) {
  const bool asked = later_([this, branch, attachment](const Interrupts::Scope&) {
    {
      MutexLock lock(m_);
      Branch& of = branches_[branch];
      of.queued = false;
      if (of.asking || of.spare.serves(attachment)) return;
      of.asking = true;
    }
    arrived(branch, reserve(branch, attachment));
  });
  if (asked) return;
  MutexLock lock(m_);
  branches_[branch].queued = false;
}

void SliceIds::arrived(BranchId branch, const Result<Batch>& batch) {
  MutexLock lock(m_);
  Branch& of = branches_[branch];
  of.asking = false;
  if (batch.ok()) of.spare = *batch;
  arrived_.notify_all();
}

Result<SliceIds::Batch> SliceIds::reserve(BranchId branch, const Attachment& attachment) {
  pb::ReserveSlicesRequest request;
  request.set_session(attachment.session.value);
  request.set_branch(branch.value);
  request.set_count(kBatch);
  pb::ReserveSlicesReply reply;
  Call call;
  call.session = attachment.session;
  call.attachment_epoch = attachment.epoch;
  call.deadline = try_deadline(0);
  SL_TRY(meta_.reserve_slices(call, request, &reply));
  if (reply.count() == 0 || reply.first() == 0)
    return Status(Errc::protocol, "a reservation of no slices");
  return Batch{attachment, reply.batch(), reply.first(), reply.first() + reply.count()};
}

}  // namespace starlane::client
