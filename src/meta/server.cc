#include "meta/server.h"

#include "meta/ops/ops.h"

namespace starlane::meta {

Server::Server(kv::Engine& engine, const Clock& clock, Options options)
    : context_(engine, clock, std::move(options)) {}

#define SL_FORWARD(number, method, Request, Reply)                                        \
  Status Server::method(const Call& call, const pb::Request& request, pb::Reply* reply) { \
    return op_##method(context_, call, request, reply);                                   \
  }
SL_META_METHODS(SL_FORWARD)
#undef SL_FORWARD

}  // namespace starlane::meta
