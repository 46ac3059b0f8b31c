// Bytes that say where in the file they belong, so that a benchmark can tell that it was given the
// right ones: every page begins with a word made of the file's seed and the page's number. Pure;
// any thread.
#pragma once
#include <cstdint>

#include "common/bytes.h"
#include "common/status.h"

namespace starlane::cli::bench {

inline constexpr std::uint64_t kPage = 4096;

/// Marks the pages that begin in `bytes`, which lies at `offset` of the file; leaves the rest.
void stamp(std::uint64_t seed, std::uint64_t offset, MutableByteSpan bytes);

/// Checks those marks. Errors: corrupt, with the first offset that is wrong.
Status check_stamps(std::uint64_t seed, std::uint64_t offset, ByteSpan bytes);

/// Fills `bytes` with what does not compress.
void fill_random(std::uint64_t seed, MutableByteSpan bytes);

}  // namespace starlane::cli::bench
