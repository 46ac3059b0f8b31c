// Exposed memory by UCX: System V shared memory inside a host, verbs between hosts; never UCX's
// TCP, and no listener. UCX makes, names and finds regions, and nothing of it waits or polls
// between calls. In shared memory the server checks the segment and moves the bytes itself: an
// offer may say what it likes. With verbs an offer's worker address is read by UCX, which aborts on
// a damaged one: offers come from peers that hold our key. Any thread.
#pragma once
#include "net/exposed_memory.h"

namespace starlane::net {

/// Starts UCX in this process. unsupported: it has neither shared memory nor verbs here.
Result<std::unique_ptr<MemoryFabric>> make_ucx_fabric();

}  // namespace starlane::net
