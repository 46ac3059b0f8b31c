// How row values are written and read: a header (format u8, flags u8, epoch u64), then fixed
// little-endian fields in the order of one `fields` list a row, then what is variable. Reading is
// strict: a wrong format or size is `corrupt`. Pure.
#pragma once
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "common/bytes.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/status.h"

namespace starlane::meta {

inline constexpr std::uint8_t kRowFormat = 1;
inline constexpr std::size_t kRowHeaderSize = 10;

struct RowHeader {
  std::uint8_t flags = 0;
  std::uint64_t epoch = 0;  // of the branch when the row was written
};

class RowEncoder {
 public:
  explicit RowEncoder(const RowHeader& header, std::size_t expected = 128) {
    out_.reserve(expected);
    field(kRowFormat);
    field(header.flags);
    field(header.epoch);
  }
  template <typename... Fields>
  void operator()(const Fields&... fields) {
    (field(fields), ...);
  }
  void bytes(std::string_view raw) { out_.append(raw); }
  /// Length u32, then the bytes.
  void text(std::string_view raw) {
    field(static_cast<std::uint32_t>(raw.size()));
    out_.append(raw);
  }
  std::string take() { return std::move(out_); }

 private:
  template <std::integral T>
  void field(T value) {
    char raw[sizeof value];
    store_little(raw, value);
    out_.append(raw, sizeof raw);
  }
  template <typename T>
  requires std::is_enum_v<T>
  void field(T value) { field(static_cast<std::underlying_type_t<T>>(value)); }
  template <typename Tag, typename Number>
  void field(Id<Tag, Number> id) {
    field(id.value);
  }
  void field(const WallTime& time) {
    field(time.seconds);
    field(time.nanoseconds);
  }

  std::string out_;
};

class RowDecoder {
 public:
  explicit RowDecoder(std::string_view value) : left_(value) {
    std::uint8_t format = 0;
    (*this)(format, header.flags, header.epoch);
    ok_ = ok_ && format == kRowFormat;
  }
  template <typename... Fields>
  void operator()(Fields&... fields) {
    (field(fields), ...);
  }
  std::string_view bytes(std::size_t size) {
    if (left_.size() < size) {
      ok_ = false;
      return {};
    }
    const std::string_view raw = left_.substr(0, size);
    left_.remove_prefix(size);
    return raw;
  }
  std::string_view text() {
    std::uint32_t size = 0;
    field(size);
    return bytes(size);
  }
  std::string_view rest() { return bytes(left_.size()); }
  bool ok() const { return ok_; }
  /// ok, and nothing is left.
  bool done() const { return ok_ && left_.empty(); }

  RowHeader header;

 private:
  template <std::integral T>
  void field(T& value) {
    const std::string_view raw = bytes(sizeof value);
    value = raw.empty() ? T{} : load_little<T>(raw.data());
  }
  template <typename T>
  requires std::is_enum_v<T>
  void field(T& value) {
    std::underlying_type_t<T> raw{};
    field(raw);
    value = static_cast<T>(raw);
  }
  template <typename Tag, typename Number>
  void field(Id<Tag, Number>& id) {
    field(id.value);
  }
  void field(WallTime& time) {
    field(time.seconds);
    field(time.nanoseconds);
    ok_ = ok_ && time.nanoseconds < 1'000'000'000;
  }

  std::string_view left_;
  bool ok_ = true;
};

/// The answer to a row that cannot be read. `what`: "inode", …
inline Status damaged(std::string_view what) {
  return {Errc::corrupt,
          "a row of metadata (" + std::string(what) + ") is damaged or of a newer format"};
}

/// For rows of fixed size: a struct with `RowHeader header` and `static void fields(self, codec)`.
template <typename Row>
std::string encode_row(const Row& row) {
  RowEncoder encoder(row.header);
  Row::fields(row, encoder);
  return encoder.take();
}
template <typename Row>
Result<Row> decode_row(std::string_view value, std::string_view what) {
  RowDecoder decoder(value);
  Row row;
  row.header = decoder.header;
  Row::fields(row, decoder);
  if (!decoder.done()) return damaged(what);
  return row;
}

}  // namespace starlane::meta
