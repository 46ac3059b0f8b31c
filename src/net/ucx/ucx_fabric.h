// Exposed memory by UCX: shared memory inside a host, verbs between hosts; never UCX's TCP, and no
// listener. What is said goes over the authenticated connection; UCX only makes, names and reaches
// regions, so nothing of it polls or waits when idle. Any thread. Offers come from peers that hold
// our key: UCX itself does not survive hostile ones.
#pragma once
#include "net/exposed_memory.h"

namespace starlane::net {

/// Starts UCX in this process. unsupported: it has neither shared memory nor verbs here.
Result<std::unique_ptr<MemoryFabric>> make_ucx_fabric();

}  // namespace starlane::net
