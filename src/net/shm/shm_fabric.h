// Exposed memory inside a host: the client makes a memfd and hands it over the unix socket, both
// ends map it, and the store reads and writes files straight from and into it. Nothing waits or
// polls. The seals of the memfd keep it from shrinking under the server. Any thread.
#pragma once
#include "net/exposed_memory.h"

namespace starlane::net {

std::unique_ptr<MemoryFabric> make_shm_fabric();

}  // namespace starlane::net
