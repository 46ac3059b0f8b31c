// The layout of the ledger's memfd, version 1: a header page, then the region in use, a log of
// records; a full region is copied, without what is dead, into a new one. Little-endian, shared by
// daemons of different builds through the descriptor, so it changes like a disk format. Plain data.
#pragma once
#include <cstdint>

#include "common/status.h"

namespace starlane::client {

struct LedgerHeader {
  static constexpr std::uint64_t kMagic = 0x315244474c4c5453;  // "STLLGDR1"
  static constexpr std::uint32_t kVersion = 1;
  static constexpr std::uint64_t kBytes = 4096;

  struct Region {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };

  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t current = 0;     // of the regions; stored last, with release
  std::uint64_t generation = 0;  // how many daemons have opened it
  Region regions[2];
  std::uint64_t reserved = 0;
};
static_assert(sizeof(LedgerHeader) == 64);

/// Followed by its value, padded to 8 bytes.
struct LedgerRecord {
  static constexpr std::uint32_t kEnd = 0;   // the log ends here
  static constexpr std::uint32_t kLive = 1;  // stored last, with release: the rest is whole
  static constexpr std::uint32_t kDead = 2;

  std::uint32_t state = kEnd;
  std::uint32_t value_bytes = 0;
  std::uint16_t kind = 0;
  std::uint16_t reserved[3] = {};
  std::uint64_t a = 0, b = 0;  // the key, with the kind
};
static_assert(sizeof(LedgerRecord) == 32);

/// invalid: not a ledger, damaged, or of a version that this build does not know. file_bytes: of
/// the memfd.
Status check(const LedgerHeader& header, std::uint64_t file_bytes);

}  // namespace starlane::client
