#include "rpc/block_codec.h"
#include "rpc/dispatch.h"

namespace starlane::rpc {
namespace {

/// Encodes the answer of a service, or passes its failure on.
template <typename Reply>
Outcome answered(const Result<Reply>& result, Buffer& reply) {
  if (!result.ok()) return {result.status()};
  encode(*result, reply);
  if (reply.size() <= kBlockReplyLimit) return {};
  return {Status(Errc::io, "an answer of " + std::to_string(reply.size()) +
                               " bytes is longer than may travel")};
}

/// A short payload ends the connection; a wrong request only the call.
template <typename Request>
Outcome refused(const Result<Request>& request) {
  return {request.status(), request.code() == Errc::protocol};
}

/// Counts what a get sends: a service that sends less than it promised has failed.
class CountingSink final : public BulkSink {
 public:
  explicit CountingSink(BulkSink& out) : out_(out) {}
  Status write(ByteSpan bytes) override {
    count_ += bytes.size();
    return out_.write(bytes);
  }
  std::optional<MutableByteSpan> memory() override { return out_.memory(); }
  void filled(std::uint64_t bytes) override {
    count_ += bytes;
    out_.filled(bytes);
  }
  std::uint64_t count() const { return count_; }

 private:
  BulkSink& out_;
  std::uint64_t count_ = 0;
};

Outcome put(BlockService& service, const Call& call, ByteSpan payload, BulkSource& source) {
  const auto request = decode_put(payload, source.size());
  if (!request.ok()) return refused(request);
  return {service.put(call, *request, source)};
}

Outcome get(BlockService& service, const Call& call, ByteSpan payload, BulkSink& sink,
            Buffer& reply) {
  const auto request = decode_get(payload);
  if (!request.ok()) return refused(request);
  CountingSink counted(sink);
  const auto result = service.get(call, *request, counted);
  if (result.ok() && counted.count() != request->length) {
    return {Status(Errc::io, "the store sent " + std::to_string(counted.count()) + " of " +
                                 std::to_string(request->length) + " bytes")};
  }
  return answered(result, reply);
}

Outcome list(BlockService& service, const Call& call, BlockMethod method, ByteSpan payload,
             Buffer& reply) {
  const auto request = decode_list(payload);
  if (!request.ok()) return refused(request);
  return answered(method == BlockMethod::list
                      ? service.list(call, request->target, request->cursor, request->limit)
                      : service.verify(call, request->target, request->cursor, request->limit),
                  reply);
}

}  // namespace

Outcome dispatch_block(BlockService& service, const Call& call, std::uint16_t number,
                       ByteSpan payload, BulkSource& source, BulkSink& sink, Buffer& reply) {
  reply.clear();
  const auto method = static_cast<BlockMethod>(number);
  switch (method) {
    case BlockMethod::put:
      return put(service, call, payload, source);
    case BlockMethod::get:
      return get(service, call, payload, sink, reply);
    case BlockMethod::list:
    case BlockMethod::verify:
      return list(service, call, method, payload, reply);
    case BlockMethod::sync: {
      const auto target = decode_target(payload);
      return target.ok() ? Outcome{service.sync(call, *target)} : refused(target);
    }
    case BlockMethod::remove_slice: {
      const auto request = decode_remove_slice(payload);
      if (!request.ok()) return refused(request);
      return {service.remove_slice(call, request->target, request->owner, request->slice)};
    }
    case BlockMethod::targets:
      return answered(service.targets(call), reply);
  }
  return {
      Status(Errc::not_implemented, "this server knows no block call " + std::to_string(number))};
}

}  // namespace starlane::rpc
