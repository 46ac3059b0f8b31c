// SHA-256 of contents, in pieces: what data sets are verified by. One object, one content, one
// thread.
#pragma once
#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "common/bytes.h"

namespace starlane {

using ContentHash = std::array<std::byte, 32>;

class ContentHasher {
 public:
  ContentHasher();
  ~ContentHasher();
  ContentHasher(const ContentHasher&) = delete;
  ContentHasher& operator=(const ContentHasher&) = delete;

  void update(ByteSpan bytes);
  /// Once, at the end.
  ContentHash finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// 64 lower-case hexadecimal digits.
std::string to_hex(const ContentHash& hash);

}  // namespace starlane
