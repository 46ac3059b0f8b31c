#include "rpc/frame_io.h"

#include <algorithm>

#include "codec/crc32c.h"

namespace starlane::rpc {
namespace {

constexpr std::size_t kChecked = offsetof(FrameHeader, header_check);

std::uint32_t check_of(const FrameHeader& header) {
  return crc32c(image_of(header).first(kChecked));
}

struct Limits {
  std::uint32_t payload;
  std::uint64_t bulk;
  std::uint32_t exposure;
};

/// A reply's kind of connection is not in it: its limit is the larger one.
Result<Limits> limits_of(FrameKind kind) {
  switch (kind) {
    case FrameKind::meta_request:
      return Limits{kMetaRequestLimit, 0, 0};
    case FrameKind::block_request:
      return Limits{kBlockRequestLimit, kBulkLimit, kExposureLimit};
    case FrameKind::bulk:
      return Limits{0, kBulkLimit, 0};
    case FrameKind::reply:
      return Limits{kMetaReplyLimit, 0, 0};
    case FrameKind::attach:
      return Limits{kAttachLimit, 0, 0};
  }
  return Status(Errc::protocol,
                "a frame of the unknown kind " + std::to_string(static_cast<int>(kind)));
}

Status too_long(std::string_view what, std::uint64_t length, std::uint64_t limit) {
  return Status(Errc::protocol, "a frame's " + std::string(what) + " of " + std::to_string(length) +
                                    " bytes is longer than the " + std::to_string(limit) +
                                    " allowed");
}

}  // namespace

void seal(FrameHeader& header, ByteSpan exposure, ByteSpan payload) {
  header.exposure_length = static_cast<std::uint16_t>(exposure.size());
  header.payload_length = static_cast<std::uint32_t>(payload.size());
  header.body_check = crc32c(payload, crc32c(exposure));
  header.header_check = check_of(header);
}

Status check_header(const FrameHeader& header) {
  if (header.magic != kFrameMagic) return Status(Errc::protocol, "bytes that are no frame");
  if (header.header_check != check_of(header))
    return Status(Errc::protocol, "a damaged frame header");
  if (header.major != kFrameMajor) {
    return Status(Errc::protocol, "a frame of protocol " + std::to_string(header.major) +
                                      ", this program speaks " + std::to_string(kFrameMajor));
  }
  const Limits limits = SL_TRY(limits_of(header.kind));
  if (header.payload_length > limits.payload)
    return too_long("payload", header.payload_length, limits.payload);
  if (header.bulk_length > limits.bulk) return too_long("bulk", header.bulk_length, limits.bulk);
  if (header.exposure_length > limits.exposure)
    return too_long("exposure", header.exposure_length, limits.exposure);
  if (header.capability_length > kCapabilityLimit) {
    return too_long("capability", header.capability_length, kCapabilityLimit);
  }
  if (header.extension_length > kExtensionLimit) {
    return too_long("extension", header.extension_length, kExtensionLimit);
  }
  return {};
}

Status check_body(const FrameHeader& header, ByteSpan body) {
  SL_CHECK(body.size() == body_length(header));
  if (crc32c(body) != header.body_check) return Status(Errc::protocol, "a damaged frame body");
  return {};
}

Result<FrameHeader> receive_header(net::Connection& connection, Deadline deadline) {
  FrameHeader header;
  SL_TRY(connection.receive(std::as_writable_bytes(std::span(&header, 1)), deadline));
  SL_TRY(check_header(header));
  return header;
}

Status receive_body(net::Connection& connection, const FrameHeader& header, Deadline deadline,
                    std::vector<std::byte>& body) {
  body.resize(body_length(header));
  SL_TRY(connection.receive(body, deadline));
  return check_body(header, body);
}

ByteSpan exposure_in(const FrameHeader& header, ByteSpan body) {
  return body.subspan(header.capability_length, header.exposure_length);
}

ByteSpan payload_in(const FrameHeader& header, ByteSpan body) {
  return body.last(header.payload_length);
}

void put_call(const Call& call, FrameHeader& header) {
  header.session = call.session.value;
  header.request = call.request;
  header.trace = call.trace;
  header.map_epoch = call.map_epoch;
  header.attachment_epoch = call.attachment_epoch;
  const Nanoseconds left = call.deadline.left();
  if (left == Nanoseconds::max()) return;
  const auto ms = std::chrono::ceil<Milliseconds>(left).count();
  header.deadline_ms = static_cast<std::uint32_t>(std::min<std::int64_t>(ms, kDeadlineNever - 1));
}

Call call_of(const FrameHeader& header) {
  Call call;
  call.session = SessionId(header.session);
  call.request = header.request;
  call.trace = header.trace;
  call.map_epoch = header.map_epoch;
  call.attachment_epoch = header.attachment_epoch;
  if (header.deadline_ms != kDeadlineNever)
    call.deadline = Deadline::after(Milliseconds(header.deadline_ms));
  return call;
}

std::string_view capped(std::string_view text) { return text.substr(0, kErrorTextLimit); }

Status status_of(const FrameHeader& header, ByteSpan payload) {
  const auto code = static_cast<Errc>(header.status);
  if (code == Errc::ok) return {};
  std::string text(capped(text_of(payload)));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  if (name_of(code) == name_of(static_cast<Errc>(0xffff))) {
    return Status(Errc::io,
                  "error " + std::to_string(header.status) + " of a newer server: " + text);
  }
  return Status(code, std::move(text));
}

}  // namespace starlane::rpc
