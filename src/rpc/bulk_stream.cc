#include "rpc/bulk_stream.h"

#include <algorithm>
#include <array>

#include "rpc/frame_io.h"

namespace starlane::rpc {
namespace {

constexpr std::size_t kHeldLimit =
    16 << 10;  // copying so much costs less than another system call and wake-up

}  // namespace

Status StreamSource::read(MutableByteSpan out) {
  if (broken_) return Status(Errc::unavailable, "the connection broke before");
  if (out.size() > left_) return Status(Errc::invalid, "read past the end of a bulk source");
  if (!deadline_) deadline_ = Deadline::after(timeout_);
  const Status status = connection_.receive(out, *deadline_);
  broken_ = !status.ok();
  if (!broken_) left_ -= out.size();
  return status;
}

Status StreamSource::drain() {
  std::array<std::byte, 64 << 10> waste;
  while (left_ != 0)
    SL_TRY(read(MutableByteSpan(waste).first(std::min<std::uint64_t>(left_, waste.size()))));
  return {};
}

FrameHeader StreamSink::header_of(std::uint64_t length) const {
  FrameHeader header;
  header.kind = FrameKind::bulk;
  header.sequence = sequence_;
  header.bulk_length = length;
  seal(header, {}, {});
  return header;
}

Status StreamSink::send(std::span<const ByteSpan> pieces) {
  const Status status = connection_.send(pieces, Deadline::after(timeout_));
  broken_ = !status.ok();
  return status;
}

Status StreamSink::write(ByteSpan bytes) {
  if (broken_) return Status(Errc::unavailable, "the connection broke before");
  if (bytes.size() > left_) return Status(Errc::invalid, "write past the end of a bulk sink");
  left_ -= bytes.size();
  if (held_.size() + bytes.size() <= kHeldLimit) {
    held_.insert(held_.end(), bytes.begin(), bytes.end());
    return {};
  }
  const FrameHeader header = header_of(held_.size() + bytes.size());
  const std::array<ByteSpan, 3> pieces{image_of(header), held_, bytes};
  const Status status = send(pieces);
  held_.clear();
  return status;
}

Status StreamSink::finish(const FrameHeader& reply, ByteSpan payload) {
  if (broken_) return Status(Errc::unavailable, "the connection broke before");
  if (held_.empty()) return send(std::array<ByteSpan, 2>{image_of(reply), payload});
  const FrameHeader header = header_of(held_.size());
  return send(std::array<ByteSpan, 4>{image_of(header), held_, image_of(reply), payload});
}

}  // namespace starlane::rpc
