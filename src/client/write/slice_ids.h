// Slice ids of this client, reserved 64 at a time, so that a put costs no call and whatever is
// never committed can be found by its reservation, after a power cut too. That makes a reservation
// wait for the device, so the next one is asked for while the last one is being used up. Any
// thread; take() blocks when it comes before the answer.
#pragma once
#include <functional>
#include <unordered_map>

#include "client/attachments.h"
#include "client/blocks/interrupts.h"
#include "common/mutex.h"
#include "proto/meta_service.h"

namespace starlane::client {

class SliceIds {
 public:
  /// Runs work on another thread, soon; false: it will not.
  using Later = std::function<bool(std::function<void(const Interrupts::Scope&)> work)>;

  SliceIds(MetaService& meta, Later later) : meta_(meta), later_(std::move(later)) {}

  struct Reserved {
    SliceId slice;
    std::uint64_t batch = 0;
  };
  /// Errors: fenced (the attachment has ended), interrupted; what the server answers for good.
  Result<Reserved> take(BranchId branch, const Attachment& attachment,
                        const Interrupts::Scope& scope) SL_EXCLUDES(m_);

 private:
  struct Batch {
    Attachment attachment;
    std::uint64_t batch = 0, next = 0, end = 0;
    bool serves(const Attachment& wanted) const { return next < end && attachment == wanted; }
  };
  struct Branch {
    Batch now;
    Batch spare;
    bool queued = false;  // the next reservation will be asked for
    bool asking = false;  // a thread waits for the server's answer
  };
  void ask_ahead(BranchId branch, const Attachment& attachment) SL_EXCLUDES(m_);
  void arrived(BranchId branch, const Result<Batch>& batch) SL_EXCLUDES(m_);
  Result<Batch> reserve(BranchId branch, const Attachment& attachment);

  MetaService& meta_;
  const Later later_;
  Mutex m_;
  CondVar arrived_;
  std::unordered_map<BranchId, Branch> branches_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::client
