// The header of every frame on a connection, after the handshake: who asks what, until when, and
// how many bytes of which kind follow. A plain little-endian image of 104 bytes; a frame is header,
// capability, exposure, extension, payload and, unless the bulk travels through exposed memory, the
// bulk. Format: docs/formats.md, "Frames". Values; any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "common/bytes.h"

namespace starlane {

inline constexpr std::uint32_t kFrameMagic = 0x52464c53;  // "SLFR"
/// Another major number is refused; a newer minor one may only add what `extension` and longer
/// payloads hold.
inline constexpr std::uint8_t kFrameMajor = 1;
inline constexpr std::uint8_t kFrameMinor = 0;

enum class FrameKind : std::uint8_t {
  meta_request = 1,   // payload: the protobuf message of the method
  block_request = 2,  // payload: a struct of block_wire.h; a put's bulk follows
  bulk = 3,           // from the server, any number before the reply: the next bytes of a get
  reply = 4,          // payload: the answer, or the error's text when status is not 0
  attach = 5,  // payload: AttachProbe, then an offer of exposed memory (net/exposed_memory.h)
};

/// Flags of a frame; unknown ones are skipped.
inline constexpr std::uint8_t kBulkInMemory =
    1;  // kind bulk: the bytes lie in the exposed memory, not on the stream

inline constexpr std::uint32_t kDeadlineNever = 0xffffffff;

struct FrameHeader {
  std::uint32_t magic = kFrameMagic;
  std::uint8_t major = kFrameMajor;
  std::uint8_t minor = kFrameMinor;
  FrameKind kind = FrameKind::reply;
  std::uint8_t flags = 0;
  std::uint16_t method = 0;
  std::uint16_t status = 0;  // Errc of a reply
  std::uint32_t deadline_ms =
      kDeadlineNever;             // time the caller still waits, from when it sent this
  std::uint64_t sequence = 0;     // of the connection; the reply repeats it
  std::uint64_t mount_nonce = 0;  // of the sending process, from its start
  std::uint64_t session = 0;
  std::uint64_t request = 0;
  std::uint64_t trace = 0;
  std::uint64_t map_epoch = 0;
  std::uint64_t attachment_epoch = 0;
  std::uint64_t bulk_length =
      0;  // follows on the stream, or lies in (or goes to) the exposed memory
  std::uint32_t payload_length = 0;
  std::uint16_t capability_length = 0;  // 0 in this version: room for signed capabilities
  std::uint16_t exposure_length =
      0;  // names memory of the client, for transports that can reach it
  std::uint16_t extension_length = 0;  // skipped by who does not know it
  std::uint16_t reserved = 0;
  std::uint32_t body_check = 0;    // CRC32C of capability, exposure, extension and payload
  std::uint32_t served_us = 0;     // of a reply: how long the server had the call
  std::uint32_t header_check = 0;  // CRC32C of the 100 bytes before
};
static_assert(sizeof(FrameHeader) == 104 && std::is_trivially_copyable_v<FrameHeader>);
static_assert(offsetof(FrameHeader, sequence) == 16 && offsetof(FrameHeader, bulk_length) == 72);
static_assert(offsetof(FrameHeader, body_check) == 92 &&
              offsetof(FrameHeader, header_check) == 100);

/// Where a request's bulk lies, or goes: in the memory that the client has exposed on this
/// connection.
struct WireExposure {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};
static_assert(sizeof(WireExposure) == 16 && std::is_trivially_copyable_v<WireExposure>);

/// The first bytes of memory just exposed. The server compares them, then writes their complement
/// behind them.
struct AttachProbe {
  std::uint8_t bytes[16] = {};
};
static_assert(sizeof(AttachProbe) == 16 && std::is_trivially_copyable_v<AttachProbe>);

/// What follows the header and precedes the bulk.
constexpr std::uint64_t body_length(const FrameHeader& header) {
  return std::uint64_t{header.capability_length} + header.exposure_length +
         header.extension_length + header.payload_length;
}

// The most a frame may carry; a longer one is refused before a byte of it is read.
inline constexpr std::uint32_t kMetaRequestLimit = 4 << 20;
inline constexpr std::uint32_t kMetaReplyLimit = 16 << 20;
inline constexpr std::uint32_t kBlockRequestLimit = 64 << 10;
inline constexpr std::uint32_t kBlockReplyLimit = 1 << 20;
inline constexpr std::uint32_t kAttachLimit = 8 << 10;
inline constexpr std::uint32_t kCapabilityLimit = 4 << 10;
inline constexpr std::uint32_t kExposureLimit = 4 << 10;
inline constexpr std::uint32_t kExtensionLimit = 4 << 10;
inline constexpr std::uint64_t kBulkLimit = kBlockSize;
inline constexpr std::size_t kErrorTextLimit =
    1024;  // of an error that travels; longer ones are cut

}  // namespace starlane
