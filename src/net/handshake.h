// What happens on a new connection before anything else is read: both ends prove, by HMAC-SHA256
// over two nonces and everything said so far, that they hold the same key. Messages have fixed
// sizes; the server's side never blocks, so that peers that have proven nothing cannot hold a
// thread. Format: docs/formats.md, "Handshake".
#pragma once
#include <cstdint>
#include <type_traits>

#include "net/key.h"
#include "net/transport.h"

namespace starlane::net {

/// What a connection is for: metadata and data never share one. wait: metadata calls that sleep
/// until something happens, and hold up nobody.
enum class Purpose : std::uint8_t { meta = 1, data = 2, wait = 3 };

/// Bits of `features`: what an end can do beyond this version's frames.
inline constexpr std::uint8_t kFeatureExposedMemory =
    1;  // addresses of ucx workers follow the handshake

inline constexpr std::uint32_t kHandshakeMagic = 0x53484c53;  // "SLHS"
inline constexpr std::uint8_t kHandshakeMajor = 1;
inline constexpr std::uint8_t kHandshakeMinor = 0;

struct ClientHello {
  std::uint32_t magic = kHandshakeMagic;
  std::uint8_t major = kHandshakeMajor;
  std::uint8_t minor = kHandshakeMinor;
  Purpose purpose = Purpose::meta;
  std::uint8_t features = 0;  // that the client offers
  std::uint64_t mount_nonce = 0;
  std::array<std::byte, 32> nonce{};
};
static_assert(sizeof(ClientHello) == 48 && std::is_trivially_copyable_v<ClientHello>);

struct ServerHello {
  std::uint32_t magic = kHandshakeMagic;
  std::uint8_t major = kHandshakeMajor;
  std::uint8_t minor = kHandshakeMinor;
  std::uint8_t refusal = 0;   // Errc; the connection ends here unless 0, and what follows is zero
  std::uint8_t features = 0;  // those of the client's that will be used
  std::array<std::byte, 32> nonce{};
  std::array<std::byte, 32> proof{};
};
static_assert(sizeof(ServerHello) == 72 && std::is_trivially_copyable_v<ServerHello>);

struct ClientProof {
  std::array<std::byte, 32> proof{};
};
static_assert(sizeof(ClientProof) == 32 && std::is_trivially_copyable_v<ClientProof>);

struct Verdict {
  std::uint32_t magic = kHandshakeMagic;
  std::uint16_t refusal = 0;  // Errc
  std::uint16_t reserved = 0;
};
static_assert(sizeof(Verdict) == 8 && std::is_trivially_copyable_v<Verdict>);

/// What both ends know of a connection afterwards.
struct Agreed {
  Purpose purpose = Purpose::meta;
  std::uint8_t features = 0;
  std::uint64_t mount_nonce = 0;
};

/// The client's side; blocks until the deadline. unauthenticated: the server has another key, or
/// refuses ours; protocol: it speaks another version; busy: it has no room for another connection.
Result<Agreed> greet(Connection& connection, const Key& key, const Agreed& wanted,
                     Deadline deadline);

/// The server's side of one connection. One thread.
class ServerHandshake {
 public:
  /// features: what this server can do.
  explicit ServerHandshake(std::uint8_t features) : features_(features) {}

  /// Takes what has arrived and answers it; never blocks. True when both have proven themselves; an
  /// error is the end of the connection. `full`: refuse with busy.
  Result<bool> advance(Connection& connection, const Key& key, bool full);
  const Agreed& agreed() const { return agreed_; }

 private:
  Status answer_hello(Connection& connection, const Key& key, bool full);
  Status judge_proof(Connection& connection, const Key& key);

  const std::uint8_t features_;
  bool greeted_ = false;
  ClientHello client_;
  ServerHello server_;
  Agreed agreed_;
};

}  // namespace starlane::net
