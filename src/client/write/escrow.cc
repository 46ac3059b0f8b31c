#include "client/write/escrow.h"

#include <algorithm>

namespace starlane::client {
namespace {

// A write that cannot be promised room is not wrong for that: it does not wait long for a server
// that is away.
constexpr Nanoseconds kAnswer = std::chrono::seconds(2);

}  // namespace

bool Escrow::promise(BranchId id, const Attachment& attachment, std::uint64_t bytes) {
  bool asked = false;
  for (;;) {
    {
      MutexLock lock(m_);
      Branch& branch = branches_[id];
      if (take(branch, attachment, bytes)) return true;
      if (branch.asking) {
        answered_.wait(m_);
        continue;
      }
      if (asked) {
        branch.unpublished += bytes;  // written all the same, and committed at once
        return false;
      }
      branch.asking = true;
    }
    ask(id, attachment, bytes);
    asked = true;
  }
}

/// From what is known, if that is fresh enough.
bool Escrow::take(Branch& branch, const Attachment& attachment, std::uint64_t bytes) {
  const Nanoseconds now = system_clock().boot();
  if (branch.asked == Nanoseconds(0) || branch.attachment != attachment) return false;
  if (!branch.limited && now - branch.asked >= 2 * options_.recheck) return false;
  if (branch.limited && branch.room < bytes) return false;
  if (branch.limited) branch.room -= bytes;
  branch.unpublished += bytes;
  branch.promised = now;
  return true;
}

void Escrow::published(BranchId id, std::uint64_t bytes) {
  MutexLock lock(m_);
  Branch& branch = branches_[id];
  branch.unpublished -= std::min(branch.unpublished, bytes);
}

bool Escrow::others_hold(BranchId id, std::uint64_t bytes) {
  pb::NodeRequest request;
  request.mutable_on()->set_branch(id.value);
  Call call;
  call.deadline = Deadline::after(kAnswer);
  pb::StatFsReply used;
  const Status asked = meta_.stat_fs(call, request, &used);
  return asked.ok() && used.live_bytes() + bytes <= used.quota_bytes();
}

/// What is promised is counted before the server says what the session has: a commit between the
/// two makes the room look smaller than it is, never larger.
void Escrow::ask(BranchId id, const Attachment& attachment, std::uint64_t bytes) {
  std::uint64_t promised = dirty_(id);
  {
    MutexLock lock(m_);
    promised += branches_[id].unpublished;
  }
  pb::EscrowRequest request;
  request.set_wanted(promised + bytes + options_.spare_bytes);
  const Result<pb::EscrowReply> reply = call(id, attachment, request);
  MutexLock lock(m_);
  Branch& branch = branches_[id];
  branch.asking = false;
  branch.attachment = attachment;
  branch.asked = system_clock().boot();
  // Whoever cannot be asked refuses nothing either: the commit has the last word.
  branch.limited = reply.ok() && reply->limited();
  branch.room = reply.ok() ? reply->escrow() - std::min(reply->escrow(), promised) : 0;
  answered_.notify_all();
}

Result<pb::EscrowReply> Escrow::call(BranchId id, const Attachment& attachment,
                                     const pb::EscrowRequest& asked) {
  pb::EscrowRequest request = asked;
  request.mutable_on()->set_session(attachment.session.value);
  request.mutable_on()->set_branch(id.value);
  request.mutable_on()->set_attachment_epoch(attachment.epoch);
  Call call;
  call.session = attachment.session;
  call.attachment_epoch = attachment.epoch;
  call.deadline = Deadline::after(kAnswer);
  pb::EscrowReply reply;
  SL_TRY(meta_.escrow(call, request, &reply));
  return reply;
}

void Escrow::give_back(BranchId id) {
  Attachment attachment;
  pb::EscrowRequest request;
  {
    MutexLock lock(m_);
    const auto at = branches_.find(id);
    if (at == branches_.end() || at->second.asking || at->second.room == 0) return;
    attachment = at->second.attachment;
    request.set_returned(std::exchange(at->second.room, 0));
  }
  // Lost on the way, it stays the session's, and is counted again by the next promise.
  static_cast<void>(call(id, attachment, request));
}

void Escrow::tick(Nanoseconds now) {
  give_back_idle(now);
  recheck(now);
}

void Escrow::recheck(Nanoseconds now) {
  std::vector<std::pair<BranchId, Attachment>> old;
  {
    MutexLock lock(m_);
    for (auto& [id, branch] : branches_) {
      const bool used = branch.promised > branch.asked && branch.asked != Nanoseconds(0);
      if (branch.limited || branch.asking || !used) continue;
      if (now - branch.asked < options_.recheck) continue;
      branch.asking = true;
      old.emplace_back(id, branch.attachment);
    }
  }
  for (const auto& [id, attachment] : old) ask(id, attachment, 0);
}

void Escrow::give_back_idle(Nanoseconds now) {
  std::vector<BranchId> idle;
  {
    MutexLock lock(m_);
    for (const auto& [id, branch] : branches_)
      if (branch.room != 0 && now - branch.promised >= options_.idle) idle.push_back(id);
  }
  for (const BranchId id : idle) give_back(id);
}

}  // namespace starlane::client
