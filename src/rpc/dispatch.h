// From a request's method and payload to a method of a service, and back to a payload. Nothing of
// what the peer sent is believed. Any thread.
#pragma once
#include <vector>

#include "common/bulk.h"
#include "proto/block_service.h"
#include "proto/frame.h"
#include "proto/meta_service.h"

namespace starlane::rpc {

/// What is answered.
struct Outcome {
  Status status;          // travels to the caller
  bool distrust = false;  // the request could not be decoded: answer, then close the connection
};

/// `reply` is replaced by the answer's payload.
Outcome dispatch_meta(MetaService& service, const Call& call, std::uint16_t method,
                      ByteSpan payload, std::vector<std::byte>& reply);
Outcome dispatch_block(BlockService& service, const Call& call, std::uint16_t method,
                       ByteSpan payload, BulkSource& source, BulkSink& sink,
                       std::vector<std::byte>& reply);

}  // namespace starlane::rpc
