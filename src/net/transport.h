// Byte streams between two processes, as rpc sees them: a connection serves one call at a time, and
// the caller's own thread drives it, asleep in the kernel while it waits. A Connection belongs to
// one thread at a time (shutdown: any); Transport: any thread; Listener: one thread.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "common/bytes.h"
#include "common/clock.h"
#include "common/status.h"
#include "common/unique_fd.h"
#include "net/endpoint.h"

namespace starlane::net {

/// Errors of all calls: unavailable (the peer is gone; nothing more will come), timeout (the
/// deadline passed in the middle: the connection can no longer be used), io.
class Connection {
 public:
  /// How many bytes `arrived` may ask for.
  static constexpr std::size_t kReadAhead = 16 << 10;

  virtual ~Connection() = default;
  /// All bytes of all pieces, in order, from where they lie.
  virtual Status send(std::span<const ByteSpan> pieces, Deadline deadline) = 0;
  /// The same, and with its first byte a descriptor for the process at the other end. unsupported,
  /// with nothing sent: no descriptor can travel here.
  virtual Status send_with(int /*descriptor*/, std::span<const ByteSpan> /*pieces*/,
                           Deadline /*deadline*/) {
    return Status(Errc::unsupported, "descriptors travel over unix sockets only");
  }
  /// The last descriptor that came with received bytes and was not taken yet, if any.
  virtual UniqueFd take_descriptor() { return {}; }
  /// The next out.size() bytes. Large ones go straight to `out`.
  virtual Status receive(MutableByteSpan out, Deadline deadline) = 0;
  /// Whether `bytes` (at most kReadAhead) can be received without waiting. Never blocks;
  /// unavailable once the peer has closed and fewer are left.
  virtual Result<bool> arrived(std::size_t bytes) = 0;
  /// Bytes that were read ahead: the descriptor does not become readable for them.
  virtual std::size_t buffered() const = 0;
  /// Readable when bytes, or the end, have come: for poll and epoll.
  virtual int descriptor() const = 0;
  /// Ends both directions: calls in progress on either side fail soon. Any thread.
  virtual void shutdown() = 0;
  /// For logs and error texts.
  virtual const std::string& peer() const = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;
  /// The next connection, or null when none waits. Never blocks.
  virtual Result<std::unique_ptr<Connection>> accept() = 0;
  /// Readable when a connection waits.
  virtual int descriptor() const = 0;
  /// Where it listens, with the port that the system chose.
  virtual const Endpoint& local() const = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual bool serves(const Endpoint& endpoint) const = 0;
  /// unavailable when nobody listens there; timeout.
  virtual Result<std::unique_ptr<Connection>> connect(const Endpoint& endpoint,
                                                      Deadline deadline) = 0;
  /// exists when another process listens there.
  virtual Result<std::unique_ptr<Listener>> listen(const Endpoint& endpoint) = 0;
};

/// The first of `transports` that serves `endpoint`, or unsupported.
Result<Transport*> transport_for(std::span<Transport* const> transports, const Endpoint& endpoint);

}  // namespace starlane::net
