// How a connection comes to exposed memory, right after the handshake: the client offers a region,
// the server reaches it and proves so by what it finds and leaves there. If that fails, bulk stays
// on the stream. One thread a connection.
#pragma once
#include "rpc/channel.h"
#include "rpc/serve_call.h"

namespace starlane::rpc {

/// The client's side. ok whether or not the server could reach the memory (then line.exposed is
/// null); an error is the connection's.
Status attach(Line& line, net::MemoryFabric& fabric, Deadline deadline);

/// The server's side: sets peer.memory, or says why not.
Status reach_offer(ByteSpan payload, UniqueFd descriptor, Peer& peer);

}  // namespace starlane::rpc
