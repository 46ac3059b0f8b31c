// What lies in a segment: self-describing records, each a header with the checksums of the payload,
// then the payload, padded to whole pages. Pure encoding; any thread. Layout: docs/formats.md,
// "Block store".
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "common/bytes.h"
#include "common/ids.h"
#include "common/status.h"

namespace starlane::block {

inline constexpr std::uint64_t kPage = 4_KiB;  // records begin and end on pages: holes are pages
inline constexpr std::uint64_t kHeaderBytes = 128;  // without checksums
inline constexpr std::uint64_t kSmallBlock =
    8_KiB;  // up to this a block is also in the index, for reading
inline constexpr std::uint8_t kUnitLog2 = 16;
static_assert(std::uint64_t{1} << kUnitLog2 == kChecksumUnit);
inline constexpr std::size_t kMostUnits = kBlockSize / kChecksumUnit;
inline constexpr std::uint64_t kMostRecord = kBlockSize + kPage;

/// Where a block is and how it is checked: in a record's header, in the index, and in memory.
struct Entry {
  std::uint64_t segment = 0;
  std::uint64_t offset = 0;          // of the record in the segment
  std::uint32_t record_length = 0;   // whole pages
  std::uint32_t payload_offset = 0;  // from the record's start
  std::uint32_t length = 0;          // of the block
  std::uint32_t stored_length = 0;   // of the payload: the same without codec and cipher
  std::uint32_t key_id = 0;
  std::uint8_t codec = 0;   // 0: stored as it is
  std::uint8_t cipher = 0;  // 0: in clear
  std::uint8_t unit_log2 = kUnitLog2;
  std::vector<std::uint32_t> checksums;  // CRC32C of each unit of the block
  std::string small;  // the block itself when it is at most kSmallBlock (not in headers)
  friend bool operator==(const Entry&, const Entry&) = default;
};
using EntryPtr = std::shared_ptr<const Entry>;

enum class RecordKind : std::uint8_t {
  block = 1,
  fences = 2,  // payload: pairs of owner u64, slice u64 that were removed
};

struct RecordHeader {
  RecordKind kind = RecordKind::block;
  std::uint64_t salt = 0;      // the target's: tells its records from copies of other ones
  std::uint64_t sequence = 0;  // of the target, in order of writing
  BlockId block;               // zero for fences
  Entry entry;
};

/// Fills in payload_offset and record_length from stored_length and the number of checksums.
void set_shape(Entry& entry);

/// Bytes of the header with its checksums.
std::uint64_t header_bytes(const Entry& entry);

/// Writes header_bytes() bytes.
void encode(const RecordHeader& header, MutableByteSpan out);

/// Reads a header from the first page of a record. corrupt when it is none or damaged, unsupported
/// when it is newer.
Result<RecordHeader> decode(ByteSpan page);

}  // namespace starlane::block
