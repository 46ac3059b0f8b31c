#include "codec/crc32c.h"

#include <gtest/gtest.h>

#include <string>

#include "common/rng.h"

namespace starlane {
namespace {

std::vector<std::byte> random_bytes(Rng& rng, std::size_t n) {
  std::vector<std::byte> result(n);
  for (auto& b : result) b = static_cast<std::byte>(rng.next());
  return result;
}

/// The definition, bit by bit: the other route.
std::uint32_t slow_crc32c(ByteSpan bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const std::byte b : bytes) {
    crc ^= static_cast<std::uint32_t>(b);
    for (int i = 0; i < 8; ++i) crc = (crc >> 1) ^ ((crc & 1) ? 0x82f63b78 : 0);
  }
  return ~crc;
}

TEST(Crc32c, GoldenVectorsOfRfc3720) {
  EXPECT_EQ(crc32c({}), 0u);
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283u);
  std::vector<std::byte> bytes(32);
  EXPECT_EQ(crc32c(bytes), 0x8a9136aau);
  for (auto& b : bytes) b = std::byte{0xff};
  EXPECT_EQ(crc32c(bytes), 0x62a8ab43u);
  for (std::size_t i = 0; i < 32; ++i) bytes[i] = static_cast<std::byte>(i);
  EXPECT_EQ(crc32c(bytes), 0x46dd794eu);
  for (std::size_t i = 0; i < 32; ++i) bytes[i] = static_cast<std::byte>(31 - i);
  EXPECT_EQ(crc32c(bytes), 0x113fdb5cu);
}

TEST(Crc32c, EveryLengthAndAlignmentAgreesWithTheDefinition) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed);
  const auto bytes = random_bytes(rng, 4200);
  for (std::size_t length = 0; length < 4100; length += 1 + length / 16) {
    const std::size_t from = rng.below(64);
    const ByteSpan part = ByteSpan(bytes).subspan(from, length);
    ASSERT_EQ(crc32c(part), slow_crc32c(part)) << from << "+" << length;
  }
}

TEST(Crc32c, PiecesAndJoinsEqualTheWhole) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed);
  const auto bytes = random_bytes(rng, 200'000);
  for (int i = 0; i < 200; ++i) {
    const std::size_t length = rng.below(bytes.size() + 1);
    const std::size_t cut = rng.below(length + 1);
    const ByteSpan whole = ByteSpan(bytes).first(length);
    const ByteSpan a = whole.first(cut), b = whole.subspan(cut);
    ASSERT_EQ(crc32c(b, crc32c(a)), crc32c(whole));
    ASSERT_EQ(crc32c_joined(crc32c(a), crc32c(b), b.size()), crc32c(whole));
  }
}

TEST(Crc32c, UnitsCoverTheBlockAndTheLastIsShort) {
  Rng rng(7);
  const auto bytes = random_bytes(rng, 2 * kChecksumUnit + 5);
  const auto units = checksum_units(bytes);
  ASSERT_EQ(units.size(), 3u);
  EXPECT_EQ(units[0], slow_crc32c(ByteSpan(bytes).first(kChecksumUnit)));
  EXPECT_EQ(units[1], slow_crc32c(ByteSpan(bytes).subspan(kChecksumUnit, kChecksumUnit)));
  EXPECT_EQ(units[2], slow_crc32c(ByteSpan(bytes).subspan(2 * kChecksumUnit)));
  EXPECT_TRUE(checksum_units({}).empty());
}

}  // namespace
}  // namespace starlane
