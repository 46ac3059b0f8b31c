// Bytes on their way: the two ends of a bulk transfer, so that a block goes from the caller's
// memory to the device, or back, without a copy in one process and with one in another. Each object
// serves one transfer, one thread.
#pragma once
#include <algorithm>
#include <cstring>
#include <optional>

#include "common/bytes.h"
#include "common/landing.h"
#include "common/status.h"

namespace starlane {

/// Where bytes come from.
class BulkSource {
 public:
  virtual ~BulkSource() = default;
  virtual std::uint64_t size() const = 0;
  /// The next out.size() bytes, all or an error. Blocks.
  virtual Status read(MutableByteSpan out) = 0;
  /// All bytes where they lie, if they lie in this process in one piece (then `read` need not be
  /// called).
  virtual std::optional<ByteSpan> memory() { return std::nullopt; }
};

/// Where bytes go.
class BulkSink {
 public:
  virtual ~BulkSink() = default;
  /// The next bytes, all or an error. Blocks.
  virtual Status write(ByteSpan bytes) = 0;
  /// The destination itself, if it lies in this process in one piece: fill its front, then call
  /// `filled`.
  virtual std::optional<MutableByteSpan> memory() { return std::nullopt; }
  virtual void filled(std::uint64_t) {}
};

class MemorySource final : public BulkSource {
 public:
  explicit MemorySource(ByteSpan bytes) : bytes_(bytes) {}
  std::uint64_t size() const override { return bytes_.size(); }
  Status read(MutableByteSpan out) override {
    if (out.size() > bytes_.size() - position_)
      return Status(Errc::invalid, "read past the end of a bulk source");
    std::memcpy(out.data(), bytes_.data() + position_, out.size());
    position_ += out.size();
    return {};
  }
  std::optional<ByteSpan> memory() override { return bytes_; }

 private:
  ByteSpan bytes_;
  std::size_t position_ = 0;
};

class LandingSink final : public BulkSink {
 public:
  explicit LandingSink(const Landing& landing) : landing_(landing) {}
  explicit LandingSink(MutableByteSpan memory) : landing_(memory) {}
  Status write(ByteSpan bytes) override {
    if (bytes.size() > landing_.size() - written_)
      return Status(Errc::invalid, "write past the end of a bulk sink");
    SL_TRY(landing_.put(written_, bytes));
    written_ += bytes.size();
    return {};
  }
  std::optional<MutableByteSpan> memory() override {
    const auto memory = landing_.memory();
    return memory ? std::optional(memory->subspan(written_)) : std::nullopt;
  }
  void filled(std::uint64_t bytes) override { written_ += bytes; }
  std::uint64_t written() const { return written_; }

 private:
  const Landing landing_;
  std::uint64_t written_ = 0;
};

}  // namespace starlane
