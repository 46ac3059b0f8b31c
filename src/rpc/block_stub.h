// BlockService over the wire. Any thread. Every call is repeated on a new connection when its own
// broke: blocks never change, so doing one twice is doing it once (a put only if its bytes lie in
// memory). The bytes go from the caller's memory to the socket, and from the socket to it, without
// a copy between.
#pragma once
#include "proto/block_service.h"
#include "rpc/channel.h"

namespace starlane::rpc {

class BlockStub final : public BlockService {
 public:
  /// `channel` is of Purpose::data and outlives the stub.
  explicit BlockStub(Channel& channel) : channel_(channel) {}

  Status put(const Call& call, const PutBlock& request, BulkSource& data) override;
  Result<GetBlockReply> get(const Call& call, const GetBlock& request, BulkSink& out) override;
  Status sync(const Call& call, TargetId target) override;
  Status remove_slice(const Call& call, TargetId target, BranchId owner, SliceId slice) override;
  Result<BlockListing> list(const Call& call, TargetId target, const std::string& cursor,
                            std::uint32_t limit) override;
  Result<BlockListing> verify(const Call& call, TargetId target, const std::string& cursor,
                              std::uint32_t limit) override;
  Result<std::vector<TargetInfo>> targets(const Call& call) override;

 private:
  Channel& channel_;
};

}  // namespace starlane::rpc
