#include "meta/server.h"

#include "meta/ops/ops.h"

namespace starlane::meta {

Server::Server(kv::Engine& engine, const Clock& clock, Options options)
    : context_(engine, clock, std::move(options)) {}

void Server::report_capacity(std::uint64_t total_bytes, std::uint64_t free_bytes) {
  context_.capacity.total_bytes.store(total_bytes, std::memory_order_relaxed);
  context_.capacity.free_bytes.store(free_bytes, std::memory_order_relaxed);
}

#define SL_FORWARD(number, method, Request, Reply)                                        \
  Status Server::method(const Call& call, const pb::Request& request, pb::Reply* reply) { \
    return op_##method(context_, call, request, reply);                                   \
  }
SL_META_METHODS(SL_FORWARD)
#undef SL_FORWARD

}  // namespace starlane::meta
