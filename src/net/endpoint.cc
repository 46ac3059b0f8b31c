#include "net/endpoint.h"

#include <charconv>

namespace starlane::net {
namespace {

constexpr std::size_t kPathLimit = 107;  // sizeof sockaddr_un::sun_path, less its end

Status malformed(std::string_view text) {
  return Status(
      Errc::invalid,
      "\"" + std::string(text) + "\" is no endpoint; write unix:/path, tcp:host:port or loop:name");
}

Result<Endpoint> parse_tcp(std::string_view text, std::string_view rest) {
  const auto colon = rest.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return malformed(text);
  std::string_view host = rest.substr(0, colon);
  if (host.front() == '[') {
    if (host.size() < 3 || host.back() != ']') return malformed(text);
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return malformed(text);
  }
  if (host.find_first_of("[]") != std::string_view::npos) return malformed(text);
  const std::string_view digits = rest.substr(colon + 1);
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size()) return malformed(text);
  return Endpoint{Endpoint::Kind::tcp, std::string(host), port};
}

}  // namespace

Result<Endpoint> Endpoint::parse(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) return malformed("...");
  if (text.starts_with("unix:")) {
    const std::string_view path = text.substr(5);
    if (path.empty() || path.front() != '/') return malformed(text);
    if (path.size() > kPathLimit) {
      return Status(Errc::invalid,
                    "the socket path " + std::string(path) + " has " + std::to_string(path.size()) +
                        " characters, the system allows 107; choose a shorter directory");
    }
    return Endpoint{Kind::unix_socket, std::string(path), 0};
  }
  if (text.starts_with("tcp:")) return parse_tcp(text, text.substr(4));
  if (text.starts_with("loop:") && text.size() > 5) {
    return Endpoint{Kind::loop, std::string(text.substr(5)), 0};
  }
  return malformed(text);
}

std::string Endpoint::to_string() const {
  switch (kind) {
    case Kind::unix_socket:
      return "unix:" + address;
    case Kind::loop:
      return "loop:" + address;
    case Kind::tcp:
      break;
  }
  const bool bare = address.find(':') == std::string::npos;
  return "tcp:" + (bare ? address : "[" + address + "]") + ":" + std::to_string(port);
}

}  // namespace starlane::net
