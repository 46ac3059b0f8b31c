// Message authentication, secret comparison and random bytes, by OpenSSL. Pure functions; any
// thread.
#pragma once
#include <array>
#include <cstddef>

#include "common/bytes.h"
#include "common/status.h"

namespace starlane {

using Mac = std::array<std::byte, 32>;

/// HMAC-SHA256 (RFC 2104) of `message` under `key`, which may have any length, also none.
Mac hmac_sha256(ByteSpan key, ByteSpan message);

/// Compares secrets of known length in a time that does not depend on their bytes. Other lengths
/// are unequal.
bool equal_secret(ByteSpan a, ByteSpan b);

/// Fills `out` with bytes fit for keys and nonces. Fails only if the system has no entropy.
Status fill_random(MutableByteSpan out);

}  // namespace starlane
