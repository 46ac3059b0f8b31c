#include "client/access_entry.h"

#include <array>
#include <charconv>
#include <cstdio>

namespace starlane::client {
namespace {

constexpr std::size_t kFields = 12;
constexpr std::int64_t kMostMicroseconds = INT64_MAX / 1000;

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// A field of its own: no space, no control character, not empty.
std::string field(std::string_view text) {
  if (text.empty()) return "-";
  if (text == "-") return "%2D";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte > 0x20 && byte != 0x7f && c != '%') {
      out += c;
      continue;
    }
    char hex[4];
    std::snprintf(hex, sizeof hex, "%%%02X", byte);
    out += hex;
  }
  return out;
}

std::string text_of(std::string_view field) {
  if (field == "-") return {};
  std::string out;
  for (std::size_t i = 0; i < field.size(); ++i) {
    const bool whole = field[i] == '%' && i + 2 < field.size();
    const int high = whole ? digit_of(field[i + 1]) : -1, low = whole ? digit_of(field[i + 2]) : -1;
    if (high < 0 || low < 0) {
      out += field[i];
      continue;
    }
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

template <typename Number>
bool number_of(std::string_view field, Number& out, int base = 10) {
  const auto parsed = std::from_chars(field.data(), field.data() + field.size(), out, base);
  return parsed.ec == std::errc() && parsed.ptr == field.data() + field.size();
}

bool time_of(std::string_view field, WallTime& out) {
  const std::size_t dot = field.find('.');
  return dot != std::string_view::npos && number_of(field.substr(0, dot), out.seconds) &&
         number_of(field.substr(dot + 1), out.nanoseconds) && out.nanoseconds < 1'000'000'000;
}

bool duration_of(std::string_view field, Nanoseconds& out) {
  const std::size_t dot = field.find('.');
  std::uint32_t tenths = 0;
  std::int64_t us = 0;
  if (dot == std::string_view::npos || !number_of(field.substr(0, dot), us) ||
      !number_of(field.substr(dot + 1), tenths) || us < 0 || us >= kMostMicroseconds || tenths > 9)
    return false;
  out = Nanoseconds(us * 1000 + tenths * 100);
  return true;
}

}  // namespace

std::string to_line(const AccessEntry& entry) {
  char head[64], tail[160];
  std::snprintf(head, sizeof head, "%lld.%09u ", static_cast<long long>(entry.at.seconds),
                entry.at.nanoseconds);
  std::snprintf(tail, sizeof tail, " %llu %llu %llu %u %d %llu %lld.%lld %016llx\n",
                static_cast<unsigned long long>(entry.offset),
                static_cast<unsigned long long>(entry.length),
                static_cast<unsigned long long>(entry.argument), entry.pid, entry.error,
                static_cast<unsigned long long>(entry.result),
                static_cast<long long>(entry.took.count() / 1000),
                static_cast<long long>(entry.took.count() % 1000 / 100),
                static_cast<unsigned long long>(entry.trace));
  return head + field(entry.operation) + " " + field(entry.path) + " " + field(entry.other) + tail;
}

Result<AccessEntry> parse_access_line(std::string_view line) {
  std::array<std::string_view, kFields> fields;
  std::size_t count = 0;
  while (!line.empty() && count < kFields) {
    const std::size_t end = std::min(line.find(' '), line.size());
    fields[count++] = line.substr(0, end);
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  AccessEntry entry;
  const bool good = count == kFields && line.empty() && time_of(fields[0], entry.at) &&
                    number_of(fields[4], entry.offset) && number_of(fields[5], entry.length) &&
                    number_of(fields[6], entry.argument) && number_of(fields[7], entry.pid) &&
                    number_of(fields[8], entry.error) && number_of(fields[9], entry.result) &&
                    duration_of(fields[10], entry.took) && number_of(fields[11], entry.trace, 16);
  if (!good) return Status(Errc::corrupt, "not a line of an access log");
  entry.operation = text_of(fields[1]);
  entry.path = text_of(fields[2]);
  entry.other = text_of(fields[3]);
  return entry;
}

}  // namespace starlane::client
