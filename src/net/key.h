// The secret that both ends of a connection prove to hold: 32 random bytes, as 64 hexadecimal
// digits in a file that only its owner may read. `up` makes it, every role loads it. Any thread.
#pragma once
#include <array>
#include <cstddef>
#include <string>

#include "common/status.h"

namespace starlane::net {

struct Key {
  std::array<std::byte, 32> bytes{};
};

/// Makes a key file with mode 0600, durable when this returns. exists: one is there (it is left
/// alone).
Status make_key_file(const std::string& path);

/// access: others may read or write the file, or it belongs to somebody else. invalid: it holds no
/// key. not_found.
Result<Key> load_key(const std::string& path);

}  // namespace starlane::net
