#include "net/transport.h"

namespace starlane::net {

Result<Transport*> transport_for(std::span<Transport* const> transports, const Endpoint& endpoint) {
  for (Transport* transport : transports) {
    if (transport->serves(endpoint)) return transport;
  }
  return Status(Errc::unsupported, "this program has no transport for " + endpoint.to_string());
}

}  // namespace starlane::net
