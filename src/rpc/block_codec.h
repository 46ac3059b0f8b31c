// Between the data channel's structs (proto/block_wire.h) and the types of BlockService. Encoders
// append to a buffer; decoders check every length against what came and believe nothing else:
// protocol for what cannot be decoded, invalid for a request that no client of ours sends. Pure
// functions; any thread.
#pragma once
#include <vector>

#include "proto/block_service.h"
#include "proto/block_wire.h"

namespace starlane::rpc {

using Buffer = std::vector<std::byte>;

struct RemoveSlice {
  TargetId target;
  BranchId owner;
  SliceId slice;
};
struct ListBlocks {
  TargetId target;
  std::uint32_t limit = 0;
  std::string cursor;
};

void encode(const PutBlock& request, Buffer& out);
void encode(const GetBlock& request, Buffer& out);
void encode(TargetId target, Buffer& out);
void encode(const RemoveSlice& request, Buffer& out);
void encode(const ListBlocks& request, Buffer& out);
void encode(const GetBlockReply& reply, Buffer& out);
void encode(const BlockListing& reply, Buffer& out);
void encode(const std::vector<TargetInfo>& reply, Buffer& out);

/// bulk_length: of the frame; the checksums must be as many as it has units.
Result<PutBlock> decode_put(ByteSpan payload, std::uint64_t bulk_length);
Result<GetBlock> decode_get(ByteSpan payload);
Result<TargetId> decode_target(ByteSpan payload);
Result<RemoveSlice> decode_remove_slice(ByteSpan payload);
/// Lowers the limit to what fits one reply.
Result<ListBlocks> decode_list(ByteSpan payload);
Result<GetBlockReply> decode_get_reply(ByteSpan payload);
Result<BlockListing> decode_listing(ByteSpan payload);
Result<std::vector<TargetInfo>> decode_targets(ByteSpan payload);

}  // namespace starlane::rpc
