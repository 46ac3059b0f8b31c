// The layout of the arena's memfd, version 1: a header page, the table of records, the data area.
// Little-endian, shared between daemons of different builds through the descriptor, so it changes
// like a disk format. Plain data.
#pragma once
#include <cstdint>

#include "common/status.h"

namespace starlane::client {

struct ArenaHeader {
  static constexpr std::uint64_t kMagic = 0x314152454e4c5453;  // "STLNERA1"
  static constexpr std::uint32_t kVersion = 1;
  static constexpr std::uint64_t kRecordsOffset = 4096;

  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t record_bytes = 64;
  std::uint64_t records = 0;
  std::uint64_t data_offset = 0;  // in the memfd, on a 2 MiB boundary
  std::uint64_t data_bytes = 0;
  std::uint64_t reserved[3] = {};
};
static_assert(sizeof(ArenaHeader) == 64);

/// One extent that was acknowledged and is not committed. Later sequences shadow earlier ones.
struct ArenaRecord {
  static constexpr std::uint32_t kFree = 0;
  static constexpr std::uint32_t kLive =
      1;  // stored last, with release: the other fields are whole
  static constexpr std::uint32_t kKillPrivileges = 1;

  std::uint32_t state = kFree;
  std::uint32_t flags = 0;
  std::uint64_t branch = 0;
  std::uint64_t inode = 0;
  std::uint64_t offset = 0;        // in the file
  std::uint64_t length = 0;        // grows while small writes follow each other
  std::uint64_t arena_offset = 0;  // in the data area
  std::uint64_t sequence = 0;
  std::uint64_t slice = 0;  // that its bytes were put as, uncommitted; 0: none yet
};
static_assert(sizeof(ArenaRecord) == 64);

/// invalid: not an arena, damaged, or of a version that this build does not know. file_bytes: of
/// the memfd.
Status check(const ArenaHeader& header, std::uint64_t file_bytes);

}  // namespace starlane::client
