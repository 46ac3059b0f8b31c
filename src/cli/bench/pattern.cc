#include "cli/bench/pattern.h"

#include <string>

#include "common/rng.h"

namespace starlane::cli::bench {
namespace {

std::uint64_t mark_of(std::uint64_t seed, std::uint64_t page) {
  std::uint64_t z = seed + page * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  return z ^ (z >> 27);
}

}  // namespace

void stamp(std::uint64_t seed, std::uint64_t offset, MutableByteSpan bytes) {
  for (std::uint64_t at = round_up(offset, kPage);
       at + sizeof(std::uint64_t) <= offset + bytes.size(); at += kPage)
    store_little(bytes.data() + (at - offset), mark_of(seed, at / kPage));
}

Status check_stamps(std::uint64_t seed, std::uint64_t offset, ByteSpan bytes) {
  for (std::uint64_t at = round_up(offset, kPage);
       at + sizeof(std::uint64_t) <= offset + bytes.size(); at += kPage)
    if (load_little<std::uint64_t>(bytes.data() + (at - offset)) != mark_of(seed, at / kPage))
      return Status(Errc::corrupt, "wrong bytes at offset " + std::to_string(at) +
                                       ": this is a fault of the file system, please report it");
  return {};
}

void fill_random(std::uint64_t seed, MutableByteSpan bytes) {
  Rng rng(seed);
  for (std::size_t at = 0; at + sizeof(std::uint64_t) <= bytes.size(); at += sizeof(std::uint64_t))
    store_little(bytes.data() + at, rng.next());
}

}  // namespace starlane::cli::bench
