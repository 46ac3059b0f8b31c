// The default transport: unix sockets inside a host, TCP between hosts (or on the loopback). Any
// thread.
#pragma once
#include "net/transport.h"

namespace starlane::net {

class TcpTransport final : public Transport {
 public:
  bool serves(const Endpoint& endpoint) const override;
  Result<std::unique_ptr<Connection>> connect(const Endpoint& endpoint, Deadline deadline) override;
  /// A socket file that a dead process left is replaced; one that answers is `exists`. The file
  /// gets mode 0600.
  Result<std::unique_ptr<Listener>> listen(const Endpoint& endpoint) override;
};

}  // namespace starlane::net
