// Whose directory this is: the file `identity` of a target, which keeps a store from opening what
// belongs to another cluster, another target or a newer version. Pure; any thread.
#pragma once
#include <string>

#include "common/ids.h"
#include "common/status.h"

namespace starlane::block {

struct Identity {
  std::string cluster;  // 1 to 64 letters, digits and dashes
  TargetId target;
  std::uint64_t salt = 0;  // random: in every record of the target
  friend bool operator==(const Identity&, const Identity&) = default;
};

/// invalid unless `cluster` can stand in an identity.
Status check_cluster_name(const std::string& cluster);

/// Lines of text for people, the last one with a CRC32C of those before.
std::string encode(const Identity& identity);

/// Errors, each one sentence that goes behind "DIR: ": unsupported (newer), corrupt, invalid
/// (something else).
Result<Identity> decode_identity(const std::string& text);

}  // namespace starlane::block
