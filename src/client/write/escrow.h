// Room under the quotas of volumes for what is written and not committed yet: bytes that the
// metadata server has set aside for this session, so that write() itself can say when a volume is
// full. A commit spends at most what was promised to the bytes that it makes the file's, so what is
// left to promise only shrinks by promises, and is counted anew when it is used up. Any thread; a
// promise may call the server. Lock: m_, never held over a call.
#pragma once
#include <functional>
#include <unordered_map>

#include "client/attachments.h"
#include "client/blocks/interrupts.h"
#include "common/bytes.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "proto/meta_service.h"

namespace starlane::client {

class Escrow {
 public:
  struct Options {
    std::uint64_t spare_bytes = 16_MiB;  // set aside beyond what is needed now
    // Whether a volume has a quota by now: in the background while it is written to, so that no
    // write waits for an answer that is seldom new; before the write when that is older than twice.
    Nanoseconds recheck{std::chrono::seconds(2)};
    Nanoseconds idle{std::chrono::seconds(1)};  // unused for so long, it is given back
  };
  /// dirty: bytes of a branch that are written and not committed; called without the lock.
  Escrow(MetaService& meta, std::function<std::uint64_t(BranchId)> dirty, const Options& options)
      : meta_(meta), dirty_(std::move(dirty)), options_(options) {}

  /// Room for a write: true, also when there is no quota, or nobody to ask. After it `published`
  /// follows, when the bytes count as dirty or never will.
  bool promise(BranchId branch, const Attachment& attachment, std::uint64_t bytes) SL_EXCLUDES(m_);
  void published(BranchId branch, std::uint64_t bytes) SL_EXCLUDES(m_);

  /// After a refusal, when nothing of ours is dirty: whether the volume itself has room for these
  /// bytes, so that it is other sessions that have it set aside. Calls the server.
  bool others_hold(BranchId branch, std::uint64_t bytes);

  /// What is not promised goes back to the server.
  void give_back(BranchId branch) SL_EXCLUDES(m_);
  /// Now and then, from the background: gives back what was not needed for a while, and asks what
  /// may have changed.
  void tick(Nanoseconds now) SL_EXCLUDES(m_);

 private:
  struct Branch {
    Attachment attachment;
    bool limited = false;
    Nanoseconds asked{0};     // boot time; 0: never
    Nanoseconds promised{0};  // the last time
    std::uint64_t room = 0;   // set aside and not promised
    std::uint64_t unpublished = 0;
    bool asking = false;  // by one thread; the others wait
  };
  bool take(Branch& branch, const Attachment& attachment, std::uint64_t bytes) SL_REQUIRES(m_);
  void give_back_idle(Nanoseconds now) SL_EXCLUDES(m_);
  void recheck(Nanoseconds now) SL_EXCLUDES(m_);
  void ask(BranchId id, const Attachment& attachment, std::uint64_t bytes) SL_EXCLUDES(m_);
  Result<pb::EscrowReply> call(BranchId id, const Attachment& attachment,
                               const pb::EscrowRequest& asked);

  MetaService& meta_;
  const std::function<std::uint64_t(BranchId)> dirty_;
  const Options options_;
  Mutex m_;
  CondVar answered_;
  std::unordered_map<BranchId, Branch> branches_ SL_GUARDED_BY(m_);  // as many as are attached
};

}  // namespace starlane::client
