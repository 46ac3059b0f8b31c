// Every target of the cluster as one BlockService: each call goes to the server that has the
// target. For the keeper and fsck, which think in targets; clients place by themselves. Any thread.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "common/mutex.h"
#include "proto/block_service.h"
#include "proto/meta_service.h"
#include "wire/network.h"

namespace starlane::wire {

class BlockRouter final : public BlockService {
 public:
  BlockRouter(MetaService& meta, Network& network) : meta_(meta), network_(network) {}

  Status put(const Call& call, const PutBlock& request, BulkSource& data) override;
  Result<GetBlockReply> get(const Call& call, const GetBlock& request, BulkSink& out) override;
  Status sync(const Call& call, TargetId target) override;
  Status remove_slice(const Call& call, TargetId target, BranchId owner, SliceId slice) override;
  Result<BlockListing> list(const Call& call, TargetId target, const std::string& cursor,
                            std::uint32_t limit) override;
  Result<BlockListing> verify(const Call& call, TargetId target, const std::string& cursor,
                              std::uint32_t limit) override;
  /// Of all servers of the map.
  Result<std::vector<TargetInfo>> targets(const Call& call) override;

 private:
  /// not_found: no such target in the map, even after it was asked for again.
  Result<std::shared_ptr<BlockService>> server_of(const Call& call, TargetId target)
      SL_EXCLUDES(m_);
  Status refresh(const Call& call) SL_EXCLUDES(m_);

  MetaService& meta_;
  Network& network_;
  Mutex m_;
  std::map<TargetId, std::string> endpoints_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::wire
