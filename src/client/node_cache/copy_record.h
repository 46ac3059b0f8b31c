// What the node cache writes into the ledger: a file's incarnation numbers, and each complete copy.
// Plain data, in docs/formats.md.
#pragma once
#include <cstdint>

#include "client/takeover/records.h"

namespace starlane::client {

struct CachedFileRecord {
  std::uint8_t preferred = 0;
  std::uint8_t last_number = 0;
  std::uint16_t slot = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(CachedFileRecord) == 8);

struct CopyRecord {
  std::uint64_t version = 0;
  std::uint64_t length = 0;  // of that version
  std::uint64_t name = 0;    // of the file in the cache's tmpfs
};
static_assert(sizeof(CopyRecord) == 24);

}  // namespace starlane::client
