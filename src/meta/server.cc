#include "meta/server.h"

#include "meta/ops/ops.h"

namespace starlane::meta {
namespace {

/// What a caller may not ask although code of this process, without a session, may.
template <typename Request>
Status admit(const Request&) {
  return {};
}
/// A reservation goes with its session.
Status admit(const pb::ReserveSlicesRequest& request) {
  return request.session() != 0 ? Status()
                                : Status(Errc::invalid, "slices are reserved for a session only");
}

}  // namespace

Server::Server(kv::Engine& engine, const Clock& clock, Options options)
    : context_(engine, clock, std::move(options)) {}

#define SL_FORWARD(number, method, Request, Reply)                                        \
  Status Server::method(const Call& call, const pb::Request& request, pb::Reply* reply) { \
    SL_TRY(admit(request));                                                               \
    return op_##method(context_, call, request, reply);                                   \
  }
SL_META_METHODS(SL_FORWARD)
#undef SL_FORWARD

}  // namespace starlane::meta
