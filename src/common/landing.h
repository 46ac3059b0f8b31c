// Where a reader wants its bytes. Any thread, several parts of one landing at once.
#pragma once
#include <optional>

#include "common/bytes.h"
#include "common/status.h"

namespace starlane {

/// All of them, or an error.
Status write_at(int file, std::uint64_t offset, ByteSpan bytes);

class Landing {
 public:
  Landing(MutableByteSpan memory) : memory_(memory) {}  // NOLINT: a span of memory is a landing
  /// memory: a mapping of the file from `offset` on. Bytes are written to the file, not to the
  /// mapping: the kernel clears a new page that is mapped, and does not clear one that a write
  /// fills whole.
  Landing(MutableByteSpan memory, int file, std::uint64_t offset)
      : memory_(memory), file_(file), offset_(offset) {}

  std::uint64_t size() const { return memory_.size(); }
  Landing subspan(std::uint64_t at, std::uint64_t length) const {
    return {memory_.subspan(at, length), file_, offset_ + at};
  }
  /// All of them, or an error.
  Status put(std::uint64_t at, ByteSpan bytes) const;
  /// What lies there.
  ByteSpan bytes() const { return memory_; }
  /// Where to write without `put`, if that is as good.
  std::optional<MutableByteSpan> memory() const {
    if (file_ >= 0) return std::nullopt;
    return memory_;
  }

 private:
  MutableByteSpan memory_;
  int file_ = -1;
  std::uint64_t offset_ = 0;
};

}  // namespace starlane
