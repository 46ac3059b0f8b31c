// Bytes as people read them. Pure.
#pragma once
#include <string>

#include "common/bytes.h"

namespace starlane {

inline std::string hex(ByteSpan bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

/// Of a plain struct, as it lies in memory.
template <typename T>
std::string hex_of(const T& value) {
  return hex(std::as_bytes(std::span(&value, 1)));
}

}  // namespace starlane
