// One call on a server's connection: reads the frame that has begun to arrive, runs it, answers.
// One thread a connection.
#pragma once
#include <vector>

#include "net/exposed_memory.h"
#include "net/handshake.h"
#include "net/transport.h"
#include "proto/block_service.h"
#include "proto/meta_service.h"

namespace starlane::rpc {

/// What a server serves; null for what it does not.
struct Services {
  MetaService* meta = nullptr;
  BlockService* block = nullptr;
};

/// How long a peer may take to send a frame it has begun, or to take an answer.
struct PeerLimits {
  Milliseconds frame_timeout{10'000};
  Milliseconds bulk_timeout{30'000};
};

/// Memory that a worker keeps from call to call.
struct Scratch {
  std::vector<std::byte> body;
  std::vector<std::byte> reply;
};

/// What a server knows of the other end of a connection.
struct Peer {
  net::Agreed agreed;
  net::MemoryFabric* fabric = nullptr;         // null: no exposed memory here
  std::unique_ptr<net::ReachedMemory> memory;  // that it has exposed, or null
};

/// ok: the connection can take the next call. An error: close it; what could be said to the peer
/// has been.
Status serve_call(net::Connection& connection, Peer& peer, const Services& services,
                  const PeerLimits& limits, Scratch& scratch);

}  // namespace starlane::rpc
