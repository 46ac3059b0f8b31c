#include "rpc/block_stub.h"

#include <algorithm>

#include "rpc/block_codec.h"

namespace starlane::rpc {
namespace {

Request request_of(BlockMethod method, const Buffer& payload) {
  Request request;
  request.kind = FrameKind::block_request;
  request.method = static_cast<std::uint16_t>(method);
  request.payload = payload;
  request.repeatable = true;
  return request;
}

/// For answers without content.
Status done(Channel& channel, const Call& call, const Request& request) {
  auto answer = channel.call(call, request);
  if (!answer.ok()) return answer.status();
  return answer->status();
}

template <typename Decode>
auto decoded(Channel& channel, const Call& call, const Request& request, Decode decode)
    -> decltype(decode(ByteSpan())) {
  auto answer = channel.call(call, request);
  if (!answer.ok()) return answer.status();
  SL_TRY(answer->status());
  auto reply = decode(answer->payload());
  if (!reply.ok()) answer->distrust();
  return reply;
}

Result<BlockListing> listed(Channel& channel, const Call& call, BlockMethod method,
                            const ListBlocks& request) {
  Buffer payload;
  encode(request, payload);
  return decoded(channel, call, request_of(method, payload), decode_listing);
}

}  // namespace

Status BlockStub::put(const Call& call, const PutBlock& request, BulkSource& data) {
  if (data.size() == 0 || data.size() > kBlockSize ||
      request.unit_checksums.size() != divide_up(data.size(), kChecksumUnit)) {
    return Status(Errc::invalid, "a block of " + std::to_string(data.size()) + " bytes with " +
                                     std::to_string(request.unit_checksums.size()) + " checksums");
  }
  Buffer payload;
  encode(request, payload);
  Request frame = request_of(BlockMethod::put, payload);
  frame.source = &data;
  return done(channel_, call, frame);
}

Result<GetBlockReply> BlockStub::get(const Call& call, const GetBlock& request, BulkSink& out) {
  Buffer payload;
  encode(request, payload);
  Request frame = request_of(BlockMethod::get, payload);
  frame.sink = &out;
  frame.sink_length = request.length;
  frame.repeatable =
      out.memory().has_value();  // bytes already written elsewhere cannot be taken back
  return decoded(channel_, call, frame, decode_get_reply);
}

Status BlockStub::sync(const Call& call, TargetId target) {
  Buffer payload;
  encode(target, payload);
  return done(channel_, call, request_of(BlockMethod::sync, payload));
}

Status BlockStub::remove_slice(const Call& call, TargetId target, BranchId owner, SliceId slice) {
  Buffer payload;
  encode(RemoveSlice{target, owner, slice}, payload);
  return done(channel_, call, request_of(BlockMethod::remove_slice, payload));
}

Result<BlockListing> BlockStub::list(const Call& call, TargetId target, const std::string& cursor,
                                     std::uint32_t limit) {
  return listed(channel_, call, BlockMethod::list, {target, limit, cursor});
}

Result<BlockListing> BlockStub::verify(const Call& call, TargetId target, const std::string& cursor,
                                       std::uint32_t limit) {
  return listed(channel_, call, BlockMethod::verify, {target, limit, cursor});
}

Result<std::vector<TargetInfo>> BlockStub::targets(const Call& call) {
  Buffer payload;
  encode(TargetId(), payload);
  return decoded(channel_, call, request_of(BlockMethod::targets, payload), decode_targets);
}

}  // namespace starlane::rpc
