#include "rpc/bulk_reached.h"

#include <algorithm>
#include <array>

#include "rpc/frame_io.h"

namespace starlane::rpc {
namespace {

constexpr std::size_t kPiece = 2 << 20;  // half a block: one overlap for one more wake-up

}  // namespace

Status ReachedSource::read(MutableByteSpan out) {
  if (out.size() > length_ - done_)
    return Status(Errc::invalid, "read past the end of a bulk source");
  const Status status = memory_.pull(offset_ + done_, out);
  broken_ = !status.ok();
  done_ += out.size();
  return status;
}

std::optional<ByteSpan> ReachedSource::memory() {
  const ByteSpan region = memory_.here();
  if (region.empty()) return std::nullopt;
  return region.subspan(offset_ + done_, length_ - done_);
}

FrameHeader ReachedSink::moved() const {
  FrameHeader header;
  header.kind = FrameKind::bulk;
  header.flags = kBulkInMemory;
  header.sequence = sequence_;
  header.bulk_length = unsaid_;
  seal(header, {}, {});
  return header;
}

Status ReachedSink::send(std::span<const ByteSpan> pieces) {
  const Status status = connection_.send(pieces, Deadline::after(timeout_));
  broken_ = !status.ok();
  unsaid_ = 0;
  return status;
}

/// The last piece is told together with the reply.
Status ReachedSink::move(ByteSpan piece) {
  const Status status = memory_.push(place_.offset + done_, piece);
  broken_ = !status.ok();
  if (broken_) return status;
  done_ += piece.size();
  unsaid_ += piece.size();
  if (done_ == place_.length || unsaid_ < kPiece) return {};
  const FrameHeader header = moved();
  return send(std::array<ByteSpan, 1>{image_of(header)});
}

std::optional<MutableByteSpan> ReachedSink::memory() {
  const MutableByteSpan region = memory_.here();
  if (region.empty() || broken_) return std::nullopt;
  return region.subspan(place_.offset + done_, place_.length - done_);
}

void ReachedSink::filled(std::uint64_t bytes) {
  done_ += bytes;
  unsaid_ += bytes;
}

Status ReachedSink::write(ByteSpan bytes) {
  if (broken_) return Status(Errc::unavailable, "the peer's memory was lost before");
  if (bytes.size() > place_.length - done_)
    return Status(Errc::invalid, "write past the end of a bulk sink");
  while (!bytes.empty()) {
    const ByteSpan piece = bytes.first(std::min(bytes.size(), kPiece));
    SL_TRY(move(piece));
    bytes = bytes.subspan(piece.size());
  }
  return {};
}

Status ReachedSink::finish(const FrameHeader& reply, ByteSpan payload) {
  if (broken_) return Status(Errc::unavailable, "the peer's memory was lost before");
  if (unsaid_ == 0) return send(std::array<ByteSpan, 2>{image_of(reply), payload});
  const FrameHeader header = moved();
  return send(std::array<ByteSpan, 3>{image_of(header), image_of(reply), payload});
}

}  // namespace starlane::rpc
