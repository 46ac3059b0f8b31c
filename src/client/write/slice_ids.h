// Slice ids of this client, reserved 64 at a time, so that a put costs no call and whatever is
// never committed can be found by its reservation. Any thread; blocks while a reservation is under
// way.
#pragma once
#include <unordered_map>

#include "client/attachments.h"
#include "client/blocks/interrupts.h"
#include "common/mutex.h"
#include "proto/meta_service.h"

namespace starlane::client {

class SliceIds {
 public:
  explicit SliceIds(MetaService& meta) : meta_(meta) {}

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
    bool asking = false;
  };
  Status reserve(BranchId branch, const Attachment& attachment, Batch& batch,
                 const Interrupts::Scope& scope);

  MetaService& meta_;
  Mutex m_;
  CondVar arrived_;
  std::unordered_map<BranchId, Batch> batches_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::client
