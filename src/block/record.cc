#include "block/record.h"

#include <algorithm>

#include "codec/crc32c.h"

namespace starlane::block {
namespace {

constexpr std::uint32_t kMagic = 0x52424c53;  // "SLBR"
constexpr std::uint16_t kVersion = 1;

#pragma pack(push, 1)
struct Wire {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint8_t kind;
  std::uint8_t flags;
  std::uint64_t salt;
  std::uint64_t segment;
  std::uint64_t offset;
  std::uint64_t sequence;
  std::uint64_t owner;
  std::uint64_t slice;
  std::uint32_t index;
  std::uint32_t length;
  std::uint32_t stored_length;
  std::uint32_t payload_offset;
  std::uint32_t record_length;
  std::uint32_t key_id;
  std::uint8_t codec;
  std::uint8_t cipher;
  std::uint8_t unit_log2;
  std::uint8_t reserved;
  std::uint32_t units;
  std::uint8_t reserved_too[36];
  std::uint32_t header_crc;  // of everything before it, then the checksums
};
#pragma pack(pop)
static_assert(sizeof(Wire) == kHeaderBytes);

Status damaged(const char* what) {
  return Status(Errc::corrupt, std::string("a record's ") + what);
}

std::uint32_t crc_of(const Wire& wire, ByteSpan checksums) {
  const auto bytes = std::as_bytes(std::span(&wire, 1)).first(offsetof(Wire, header_crc));
  return crc32c(checksums, crc32c(bytes));
}

Status check(const Wire& wire) {
  if (wire.kind != 1 && wire.kind != 2) return damaged("kind is unknown");
  if (wire.length == 0 || wire.length > kBlockSize) return damaged("length is impossible");
  if (wire.codec != 0 || wire.cipher != 0) {
    return Status(Errc::unsupported, "a record uses a codec or cipher of a newer version");
  }
  if (wire.stored_length != wire.length) return damaged("lengths disagree");
  if (wire.unit_log2 != kUnitLog2 || wire.units != divide_up(wire.length, kChecksumUnit)) {
    return damaged("checksums do not cover it");
  }
  return {};
}

}  // namespace

std::uint64_t header_bytes(const Entry& entry) { return kHeaderBytes + 4 * entry.checksums.size(); }

void set_shape(Entry& entry) {
  // A large payload begins on a page of its own, so that it is read straight into aligned memory; a
  // small one is read from the index and only has to be compact.
  const std::uint64_t at = entry.stored_length <= kSmallBlock ? header_bytes(entry) : kPage;
  entry.payload_offset = static_cast<std::uint32_t>(at);
  entry.record_length = static_cast<std::uint32_t>(round_up(at + entry.stored_length, kPage));
}

void encode(const RecordHeader& header, MutableByteSpan out) {
  const Entry& entry = header.entry;
  SL_CHECK(out.size() >= header_bytes(entry) && entry.checksums.size() <= kMostUnits);
  Wire wire{};
  wire.magic = kMagic;
  wire.version = kVersion;
  wire.kind = static_cast<std::uint8_t>(header.kind);
  wire.salt = header.salt;
  wire.segment = entry.segment;
  wire.offset = entry.offset;
  wire.sequence = header.sequence;
  wire.owner = header.block.owner.value;
  wire.slice = header.block.slice.value;
  wire.index = header.block.index;
  wire.length = entry.length;
  wire.stored_length = entry.stored_length;
  wire.payload_offset = entry.payload_offset;
  wire.record_length = entry.record_length;
  wire.key_id = entry.key_id;
  wire.codec = entry.codec;
  wire.cipher = entry.cipher;
  wire.unit_log2 = entry.unit_log2;
  wire.units = static_cast<std::uint32_t>(entry.checksums.size());
  const ByteSpan checksums = std::as_bytes(std::span(entry.checksums));
  wire.header_crc = crc_of(wire, checksums);
  std::memcpy(out.data(), &wire, sizeof wire);
  std::ranges::copy(checksums, out.begin() + sizeof wire);
}

Result<RecordHeader> decode(ByteSpan page) {
  Wire wire;
  if (page.size() < sizeof wire + 4 * kMostUnits) return damaged("header is cut off");
  std::memcpy(&wire, page.data(), sizeof wire);
  if (wire.magic != kMagic) return damaged("magic is missing");
  if (wire.units > kMostUnits) return damaged("checksums do not fit");
  const ByteSpan checksums = page.subspan(sizeof wire, 4 * wire.units);
  if (wire.header_crc != crc_of(wire, checksums)) return damaged("header fails its check");
  if (wire.version != kVersion) {
    return Status(Errc::unsupported, "a record is of format " + std::to_string(wire.version));
  }
  SL_TRY(check(wire));
  RecordHeader header;
  header.kind = RecordKind{wire.kind};
  header.salt = wire.salt;
  header.sequence = wire.sequence;
  header.block = {BranchId(wire.owner), SliceId(wire.slice), wire.index};
  Entry& entry = header.entry;
  entry.segment = wire.segment;
  entry.offset = wire.offset;
  entry.length = wire.length;
  entry.stored_length = wire.stored_length;
  entry.key_id = wire.key_id;
  entry.checksums.resize(wire.units);
  std::memcpy(entry.checksums.data(), checksums.data(), checksums.size());
  set_shape(entry);
  if (entry.payload_offset != wire.payload_offset || entry.record_length != wire.record_length) {
    return damaged("shape is impossible");
  }
  return header;
}

}  // namespace starlane::block
