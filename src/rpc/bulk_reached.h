// The server's ends of a bulk transfer through memory that the client has exposed. Each serves one
// call, one thread.
#pragma once
#include "net/exposed_memory.h"
#include "rpc/bulk_stream.h"

namespace starlane::rpc {

class ReachedSource final : public ServedSource {
 public:
  ReachedSource(net::ReachedMemory& memory, std::uint64_t offset, std::uint64_t length)
      : memory_(memory), offset_(offset), length_(length) {}

  std::uint64_t size() const override { return length_; }
  Status read(MutableByteSpan out) override;
  /// A peer that changes its bytes between a check and their use spoils what it puts, nothing else:
  /// readers find out.
  std::optional<ByteSpan> memory() override;
  Status drain() override { return {}; }
  bool broken() const override { return broken_; }

 private:
  net::ReachedMemory& memory_;
  const std::uint64_t offset_, length_;
  std::uint64_t done_ = 0;
  bool broken_ = false;
};

/// Moves a piece, says so with a bulk frame, and moves the next while the client copies the last.
class ReachedSink final : public ServedSink {
 public:
  ReachedSink(net::Connection& connection, net::ReachedMemory& memory, WireExposure place,
              std::uint64_t sequence, Milliseconds timeout)
      : connection_(connection),
        memory_(memory),
        place_(place),
        sequence_(sequence),
        timeout_(timeout) {}

  Status write(ByteSpan bytes) override;
  std::optional<MutableByteSpan> memory() override;
  void filled(std::uint64_t bytes) override;
  Status finish(const FrameHeader& reply, ByteSpan payload) override;
  bool broken() const override { return broken_; }

 private:
  Status move(ByteSpan piece);
  Status send(std::span<const ByteSpan> pieces);
  FrameHeader moved() const;

  net::Connection& connection_;
  net::ReachedMemory& memory_;
  const WireExposure place_;
  const std::uint64_t sequence_;
  const Milliseconds timeout_;
  std::uint64_t done_ = 0;
  std::uint64_t unsaid_ = 0;  // moved, and not yet told
  bool broken_ = false;
};

}  // namespace starlane::rpc
