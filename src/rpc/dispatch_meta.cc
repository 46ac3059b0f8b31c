#include "rpc/dispatch.h"

namespace starlane::rpc {
namespace {

template <typename Message, typename Reply>
Outcome run(MetaService& service,
            Status (MetaService::*method)(const Call&, const Message&, Reply*), const Call& call,
            ByteSpan payload, std::vector<std::byte>& out) {
  Message request;
  if (!request.ParseFromArray(payload.data(), static_cast<int>(payload.size()))) {
    return {Status(Errc::protocol, "a metadata request that cannot be decoded"), true};
  }
  Reply reply;
  if (const Status status = (service.*method)(call, request, &reply); !status.ok()) return {status};
  const std::size_t size = reply.ByteSizeLong();
  if (size > kMetaReplyLimit) {
    return {Status(Errc::io, "an answer of " + std::to_string(size) +
                                 " bytes is longer than may travel; ask for less")};
  }
  out.resize(size);
  reply.SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(out.data()));
  return {};
}

}  // namespace

Outcome dispatch_meta(MetaService& service, const Call& call, std::uint16_t method,
                      ByteSpan payload, std::vector<std::byte>& reply) {
  reply.clear();
  switch (method) {
#define SL_CASE(number, name, Request, Reply) \
  case number:                                \
    return run(service, &MetaService::name, call, payload, reply);
    SL_META_METHODS(SL_CASE)
#undef SL_CASE
    default:
      break;
  }
  return {Status(Errc::not_implemented,
                 "this server knows no metadata call " + std::to_string(method))};
}

}  // namespace starlane::rpc
