// Numbers and texts in the value of a ledger's record, one after the other. Little-endian; a text
// has its length before it, as u16. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/bytes.h"

namespace starlane::client {

class RecordWriter {
 public:
  template <typename T>
  RecordWriter& number(T value) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    store_little(bytes_.data() + at, value);
    return *this;
  }
  RecordWriter& text(std::string_view text) {
    text = text.substr(0, UINT16_MAX);
    number(static_cast<std::uint16_t>(text.size()));
    const ByteSpan bytes = bytes_of(text);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// Zeros and empty texts beyond the end, where `good` says so.
class RecordReader {
 public:
  explicit RecordReader(ByteSpan bytes) : rest_(bytes) {}

  template <typename T>
  T number() {
    if (rest_.size() < sizeof(T)) return good_ = false, T{};
    const T value = load_little<T>(rest_.data());
    rest_ = rest_.subspan(sizeof(T));
    return value;
  }
  std::string text() {
    const auto length = number<std::uint16_t>();
    if (rest_.size() < length) return good_ = false, std::string();
    const std::string value(text_of(rest_.first(length)));
    rest_ = rest_.subspan(length);
    return value;
  }
  bool good() const { return good_; }
  bool at_end() const { return rest_.empty(); }

 private:
  ByteSpan rest_;
  bool good_ = true;
};

}  // namespace starlane::client
