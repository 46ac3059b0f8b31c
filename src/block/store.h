// The block store: the targets of one server behind BlockService. A target is a directory (or a
// disk that a test made) with append-only segments, and an index that is derived from them. Any
// thread; targets share buffers and nothing else.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "block/target.h"
#include "proto/block_service.h"

namespace starlane::block {

struct StoreOptions {
  std::string cluster;                 // 1 to 64 letters, digits and dashes, usually a UUID
  std::vector<TargetOptions> targets;  // ids are distinct
  Tuning tuning;
  std::size_t buffers = 16;  // of 4 MiB: transfers that need memory of the store's own, at once
};

class Store final : public BlockService {
 public:
  /// Opens all targets, in parallel, or none. An error is one sentence that names the directory.
  static Result<std::unique_ptr<Store>> open(StoreOptions options);

  Status put(const Call& call, const PutBlock& request, BulkSource& data) override;
  Result<GetBlockReply> get(const Call& call, const GetBlock& request, BulkSink& out) override;
  Status sync(const Call& call, TargetId target) override;
  Status remove_slice(const Call& call, TargetId target, BranchId owner, SliceId slice) override;
  /// `limit` blocks a call.
  Result<BlockListing> list(const Call& call, TargetId target, const std::string& cursor,
                            std::uint32_t limit) override;
  /// `limit` blocks are checked a call, of which the bad ones come back.
  Result<BlockListing> verify(const Call& call, TargetId target, const std::string& cursor,
                              std::uint32_t limit) override;
  Result<std::vector<TargetInfo>> targets(const Call& call) override;

  /// Since the store was opened. not_found.
  Result<TargetCounters> counters(TargetId target) const;

 private:
  explicit Store(std::size_t buffers);
  Result<Target*> find(const Call& call, TargetId id) const;

  BufferPool buffers_;
  std::map<TargetId, std::unique_ptr<Target>> targets_;
};

}  // namespace starlane::block
