// How embedded engines keep rows, accumulators and their own state in a Storage; docs/formats.md
// has the same table. Pure functions. Integers are little-endian.
//
//   key                 value
//   'e' "sequence"      u32 format (1), u64 last version given out
//   'r' key             u64 version, the row's value
//   't' key             u8 kind (1 sum, 2 greatest), i64 value
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "common/bytes.h"
#include "kv/engine.h"

namespace starlane::kv::occ {

inline constexpr std::uint32_t kFormat = 1;
inline constexpr std::string_view kSequenceKey = "esequence";
inline constexpr std::size_t kSequenceBytes = 12;
inline constexpr std::size_t kRowHeaderBytes = 8;
inline constexpr std::size_t kTotalBytes = 9;
inline constexpr std::string_view kRowsEnd = "s";

enum class TotalKind : std::uint8_t { none = 0, sum = 1, greatest = 2 };

inline std::string row_key(std::string_view key) { return std::string("r").append(key); }
inline std::string total_key(std::string_view key) { return std::string("t").append(key); }

/// A row's value with room for the version, which is known when the commit has its place in the
/// order.
inline std::string row_value(std::string_view value) {
  return std::string(kRowHeaderBytes, '\0').append(value);
}
inline Result<Version> version_of(std::string_view stored) {
  if (stored.size() < kRowHeaderBytes)
    return Status(Errc::corrupt, "a row of the key-value engine is damaged");
  return load_little<Version>(stored.data());
}

struct Total {
  TotalKind kind = TotalKind::none;  // none: not there
  std::int64_t value = 0;
};

inline std::string encode(const Total& total) {
  std::string out(kTotalBytes, static_cast<char>(total.kind));
  store_little(out.data() + 1, total.value);
  return out;
}
inline Result<Total> decode_total(std::string_view stored) {
  if (stored.size() != kTotalBytes || (stored[0] != 1 && stored[0] != 2))
    return Status(Errc::corrupt, "an accumulator of the key-value engine is damaged");
  return Total{static_cast<TotalKind>(stored[0]), load_little<std::int64_t>(stored.data() + 1)};
}

inline std::string encode_sequence(Version last) {
  std::string out(kSequenceBytes, '\0');
  store_little(out.data(), kFormat);
  store_little(out.data() + sizeof kFormat, last);
  return out;
}
inline Result<Version> decode_sequence(std::string_view stored) {
  if (stored.size() < sizeof kFormat)
    return Status(Errc::corrupt, "the key-value engine's own row is damaged");
  if (const auto format = load_little<std::uint32_t>(stored.data()); format != kFormat)
    return Status(Errc::unsupported, "the metadata has format " + std::to_string(format) +
                                         ", this program knows format " + std::to_string(kFormat));
  if (stored.size() != kSequenceBytes)
    return Status(Errc::corrupt, "the key-value engine's own row is damaged");
  return load_little<Version>(stored.data() + sizeof kFormat);
}

}  // namespace starlane::kv::occ
