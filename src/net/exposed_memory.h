// Bulk beside the stream: a client exposes memory of its own, and the server moves bytes into and
// out of it; server memory is never exposed. A region belongs to one connection and outlives every
// call on it, so that a call which gave up leaves a late server nothing to damage. Fabric: any
// thread; the ends: one thread at a time.
#pragma once
#include <memory>
#include <string>

#include "common/bytes.h"
#include "common/status.h"
#include "common/unique_fd.h"

namespace starlane::net {

/// The client's end.
class ExposedMemory {
 public:
  virtual ~ExposedMemory() = default;
  virtual MutableByteSpan region() = 0;
  /// What the server needs to reach it, for MemoryFabric::reach there.
  virtual const std::string& offer() const = 0;
  /// A descriptor that must travel with the offer, or -1.
  virtual int descriptor() const { return -1; }
  /// Lets the transport answer the server's first contact. Never blocks; to be called while that is
  /// awaited, not later.
  virtual void progress() = 0;
};

/// The server's end. Offsets and lengths that do not lie in the region are `invalid`.
class ReachedMemory {
 public:
  virtual ~ReachedMemory() = default;
  virtual std::uint64_t size() const = 0;
  /// The region itself, where this process has it mapped: then nothing need be copied. The peer can
  /// change what lies there at any time. Else empty.
  virtual MutableByteSpan here() { return {}; }
  /// Copies out of, or into, the client's region: done when it returns. After another error than
  /// invalid, use it no more.
  Status pull(std::uint64_t offset, MutableByteSpan out);
  Status push(std::uint64_t offset, ByteSpan bytes);

 protected:
  /// The same for a range inside a region that is not mapped here; those that always are need none.
  virtual Status move_out(std::uint64_t offset, MutableByteSpan out);
  virtual Status move_in(std::uint64_t offset, ByteSpan bytes);

 private:
  bool inside(std::uint64_t offset, std::uint64_t length) const {
    return offset <= size() && length <= size() - offset;
  }
};

/// One kind of reachable memory in this process.
class MemoryFabric {
 public:
  virtual ~MemoryFabric() = default;
  virtual Result<std::unique_ptr<ExposedMemory>> expose(std::uint64_t bytes) = 0;
  /// unavailable: the two ends share no way to memory. Whether the right bytes are there is for the
  /// caller to try.
  virtual Result<std::unique_ptr<ReachedMemory>> reach(ByteSpan offer, UniqueFd descriptor) = 0;
};

}  // namespace starlane::net
