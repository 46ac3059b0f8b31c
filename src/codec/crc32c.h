// CRC32C (Castagnoli: polynomial 0x1EDC6F41, reflected, initial value and final xor 0xffffffff):
// what guards every block from writer to reader, every stored record and every frame. Pure
// functions; any thread.
#pragma once
#include <cstdint>
#include <vector>

#include "common/bytes.h"

namespace starlane {

/// CRC32C of `bytes`. Piecewise: pass the value so far, crc32c(b, crc32c(a)) == crc32c(a followed
/// by b).
std::uint32_t crc32c(ByteSpan bytes, std::uint32_t so_far = 0);

/// CRC32C of a followed by b, from crc32c(a), crc32c(b) and the length of b in bytes. About 100 ns.
std::uint32_t crc32c_joined(std::uint32_t a, std::uint32_t b, std::uint64_t length_of_b);

/// One CRC32C for each kChecksumUnit of `bytes`; the last unit may be shorter. Empty for no bytes.
std::vector<std::uint32_t> checksum_units(ByteSpan bytes);

/// Whether the bytes from `offset` of a block agree with sums that are cut at the block's units.
bool checksums_match(ByteSpan bytes, std::uint64_t offset, const std::vector<std::uint32_t>& sums);

}  // namespace starlane
