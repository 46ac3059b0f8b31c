// The server's ends of a bulk transfer that follows on the connection's stream: a put's bytes are
// pulled straight into the store's buffer, a get's are sent from it. Each serves one call, one
// thread.
#pragma once
#include <vector>

#include "common/bulk.h"
#include "net/transport.h"
#include "proto/frame.h"

namespace starlane::rpc {

/// What a server needs of either end beyond what the service sees.
class ServedSource : public BulkSource {
 public:
  /// Sees to it that the next frame can be found, whatever was not read.
  virtual Status drain() = 0;
  /// The peer can no longer be reached; nothing more can be said to it.
  virtual bool broken() const = 0;
};
class ServedSink : public BulkSink {
 public:
  /// Sends what waits, and the reply.
  virtual Status finish(const FrameHeader& reply, ByteSpan payload) = 0;
  virtual bool broken() const = 0;
};

class StreamSource final : public ServedSource {
 public:
  /// timeout: from the first read to the last.
  StreamSource(net::Connection& connection, std::uint64_t length, Milliseconds timeout)
      : connection_(connection), length_(length), left_(length), timeout_(timeout) {}

  std::uint64_t size() const override { return length_; }
  Status read(MutableByteSpan out) override;
  /// Receives and forgets the rest.
  Status drain() override;
  bool broken() const override { return broken_; }

 private:
  net::Connection& connection_;
  const std::uint64_t length_;
  std::uint64_t left_;
  const Milliseconds timeout_;
  std::optional<Deadline> deadline_;
  bool broken_ = false;
};

/// Each write is a bulk frame; small ones wait for the reply and leave with it.
class StreamSink final : public ServedSink {
 public:
  /// timeout: of each send.
  StreamSink(net::Connection& connection, std::uint64_t sequence, std::uint64_t limit,
             Milliseconds timeout)
      : connection_(connection), sequence_(sequence), left_(limit), timeout_(timeout) {}

  Status write(ByteSpan bytes) override;
  Status finish(const FrameHeader& reply, ByteSpan payload) override;
  bool broken() const override { return broken_; }

 private:
  FrameHeader header_of(std::uint64_t length) const;
  Status send(std::span<const ByteSpan> pieces);

  net::Connection& connection_;
  const std::uint64_t sequence_;
  std::uint64_t left_;
  const Milliseconds timeout_;
  std::vector<std::byte> held_;
  bool broken_ = false;
};

}  // namespace starlane::rpc
