// Sizes, views of raw memory, and fixed-width integers in them. Pure; any thread.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace starlane {

static_assert(std::endian::native == std::endian::little,
              "stored and sent integers are little-endian");

using ByteSpan = std::span<const std::byte>;
using MutableByteSpan = std::span<std::byte>;

inline constexpr std::uint64_t operator""_KiB(unsigned long long n) { return n << 10; }
inline constexpr std::uint64_t operator""_MiB(unsigned long long n) { return n << 20; }
inline constexpr std::uint64_t operator""_GiB(unsigned long long n) { return n << 30; }

inline constexpr std::uint64_t kChunkSize = 64_MiB;     // a file is cut into these
inline constexpr std::uint64_t kBlockSize = 4_MiB;      // a slice is blocks of at most this
inline constexpr std::uint64_t kChecksumUnit = 64_KiB;  // CRC32C travels and is kept per unit
inline constexpr std::uint64_t kHugePage = 2_MiB;
inline constexpr std::uint64_t kInlineLimit = 4_KiB;  // contents up to this live in metadata

inline ByteSpan bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
inline std::string_view text_of(ByteSpan bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <typename T>
T load_little(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <typename T>
void store_little(void* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

inline std::uint64_t load_big64(const void* from) {
  return __builtin_bswap64(load_little<std::uint64_t>(from));
}
inline void store_big64(void* to, std::uint64_t value) {
  store_little(to, __builtin_bswap64(value));
}

constexpr std::uint64_t round_down(std::uint64_t n, std::uint64_t unit) { return n / unit * unit; }
constexpr std::uint64_t round_up(std::uint64_t n, std::uint64_t unit) {
  return (n + unit - 1) / unit * unit;
}
constexpr std::uint64_t divide_up(std::uint64_t n, std::uint64_t unit) {
  return (n + unit - 1) / unit;
}

}  // namespace starlane
