#include "block/identity.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "codec/crc32c.h"

namespace starlane::block {
namespace {

constexpr std::string_view kTitle = "starlane block target\n";
constexpr std::uint64_t kFormat = 1;

std::string hex(std::uint64_t value, int digits) {
  char text[17];
  std::snprintf(text, sizeof text, "%0*" PRIx64, digits, value);
  return text;
}

/// Takes "name value\n" off the front of `rest`; empty when it is not there.
std::string take_line(std::string_view& rest, std::string_view name) {
  const std::size_t end = rest.find('\n');
  if (end == std::string_view::npos || !rest.starts_with(name) || rest.size() <= name.size() ||
      rest[name.size()] != ' ') {
    return {};
  }
  const std::string value(rest.substr(name.size() + 1, end - name.size() - 1));
  rest.remove_prefix(end + 1);
  return value;
}

/// Digits of the base only, all of them; false otherwise.
bool parse(const std::string& text, int base, std::uint64_t& value) {
  const std::string_view digits = base == 16 ? "0123456789abcdef" : "0123456789";
  if (text.empty() || text.size() > 19 - (base == 16 ? 3 : 0)) return false;
  if (text.find_first_not_of(digits) != std::string::npos) return false;
  value = std::stoull(text, nullptr, base);
  return true;
}

std::string check_line(std::string_view body) {
  return "crc32c " + hex(crc32c(bytes_of(body)), 8) + "\n";
}

Status damaged() { return Status(Errc::corrupt, "its identity file is damaged"); }

}  // namespace

Status check_cluster_name(const std::string& cluster) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
  };
  if (!cluster.empty() && cluster.size() <= 64 && std::ranges::all_of(cluster, allowed)) return {};
  return Status(Errc::invalid, "a cluster's name is 1 to 64 letters, digits and dashes");
}

std::string encode(const Identity& identity) {
  std::string text(kTitle);
  text += "format " + std::to_string(kFormat) + "\n";
  text += "cluster " + identity.cluster + "\n";
  text += "target " + std::to_string(identity.target.value) + "\n";
  text += "salt " + hex(identity.salt, 16) + "\n";
  return text + check_line(text);
}

Result<Identity> decode_identity(const std::string& text) {
  std::string_view rest = text;
  if (!rest.starts_with(kTitle)) {
    return Status(Errc::invalid, "it is not a block target of Starlane");
  }
  rest.remove_prefix(kTitle.size());
  std::uint64_t format = 0;
  if (!parse(take_line(rest, "format"), 10, format)) return damaged();
  if (format > kFormat) {
    return Status(Errc::unsupported, "it has format " + std::to_string(format) +
                                         ", which needs a newer version of Starlane");
  }
  Identity identity;
  std::uint64_t target = 0;
  identity.cluster = take_line(rest, "cluster");
  const bool parsed = parse(take_line(rest, "target"), 10, target) &&
                      parse(take_line(rest, "salt"), 16, identity.salt);
  const std::string_view body = std::string_view(text).substr(0, text.size() - rest.size());
  if (!parsed || rest != check_line(body) || format != kFormat || target == 0 ||
      target > UINT32_MAX || !check_cluster_name(identity.cluster).ok()) {
    return damaged();
  }
  identity.target = TargetId(static_cast<std::uint32_t>(target));
  return identity;
}

}  // namespace starlane::block
