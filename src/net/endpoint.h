// Where a server listens: "unix:/path", "tcp:host:port" ("tcp:[::1]:7001" for IPv6) or "loop:name"
// (inside this process, for tests). A value; any thread.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "common/status.h"

namespace starlane::net {

struct Endpoint {
  enum class Kind : std::uint8_t { unix_socket, tcp, loop };

  Kind kind = Kind::tcp;
  std::string address;     // path, host or name
  std::uint16_t port = 0;  // tcp; 0 to listen on any free one

  /// invalid, with a sentence that says what is accepted, for anything else.
  static Result<Endpoint> parse(std::string_view text);
  /// What `parse` takes.
  std::string to_string() const;

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

}  // namespace starlane::net
