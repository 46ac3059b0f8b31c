#include "codec/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <array>

namespace starlane {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // reflected: bit 31 is the coefficient of x^0

/// a times b modulo the polynomial.
constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = 0x80000000; bit != 0; bit >>= 1) {
    if (a & bit) product ^= b;
    b = (b >> 1) ^ ((b & 1) ? kPolynomial : 0);
  }
  return product;
}

/// [i] = x^(8 * 2^i): a shift by 2^i bytes.
constexpr std::array<std::uint32_t, 64> powers() {
  std::array<std::uint32_t, 64> result{};
  std::uint32_t power = 0x00800000;  // x^8
  for (auto& entry : result) {
    entry = power;
    power = multiply(power, power);
  }
  return result;
}

constexpr auto kPowers = powers();

}  // namespace

std::uint32_t crc32c(ByteSpan bytes, std::uint32_t so_far) {
  constexpr std::size_t kMost = std::size_t{1} << 30;  // ISA-L counts in int
  std::uint32_t state = ~so_far;
  while (!bytes.empty()) {
    const std::size_t n = std::min(bytes.size(), kMost);
    // ISA-L takes a pointer to non-const, and reads only.
    auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
    state = crc32_iscsi(data, static_cast<int>(n), state);
    bytes = bytes.subspan(n);
  }
  return ~state;
}

std::uint32_t crc32c_joined(std::uint32_t a, std::uint32_t b, std::uint64_t length_of_b) {
  for (std::size_t i = 0; length_of_b != 0; ++i, length_of_b >>= 1) {
    if (length_of_b & 1) a = multiply(a, kPowers[i]);
  }
  return a ^ b;
}

std::vector<std::uint32_t> checksum_units(ByteSpan bytes) {
  std::vector<std::uint32_t> result;
  result.reserve(divide_up(bytes.size(), kChecksumUnit));
  while (!bytes.empty()) {
    const std::size_t n = std::min<std::size_t>(bytes.size(), kChecksumUnit);
    result.push_back(crc32c(bytes.first(n)));
    bytes = bytes.subspan(n);
  }
  return result;
}

bool checksums_match(ByteSpan bytes, std::uint64_t offset, const std::vector<std::uint32_t>& sums) {
  for (const std::uint32_t sum : sums) {
    const std::size_t n =
        std::min<std::size_t>(bytes.size(), kChecksumUnit - offset % kChecksumUnit);
    if (n == 0 || crc32c(bytes.first(n)) != sum) return false;
    bytes = bytes.subspan(n);
    offset += n;
  }
  return bytes.empty();
}

}  // namespace starlane
