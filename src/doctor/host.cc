#include "doctor/host.h"

#include <charconv>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace starlane::doctor {
namespace {

std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t value = 0;
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::string> Host::text(const std::string& path) const {
  std::ifstream in(root_ / path);
  if (!in) return std::nullopt;
  std::ostringstream all;
  all << in.rdbuf();
  std::string text = all.str();
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

std::optional<std::uint64_t> Host::number(const std::string& path) const {
  const auto found = text(path);
  return found ? number_in(*found) : std::nullopt;
}

std::optional<std::string> Host::choice(const std::string& path) const {
  const auto found = text(path);
  if (!found) return std::nullopt;
  const std::size_t open = found->find('['), close = found->find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  return found->substr(open + 1, close - open - 1);
}

std::optional<std::uint64_t> Host::field(const std::string& path, const std::string& name) const {
  std::istringstream in(text(path).value_or(""));
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(name + ":")) continue;
    const auto value = number_in(std::string_view(line).substr(name.size() + 1));
    if (!value) return std::nullopt;
    return line.ends_with(" kB") ? *value * 1024 : *value;
  }
  return std::nullopt;
}

bool Host::exists(const std::string& path) const {
  std::error_code ignored;
  return std::filesystem::exists(root_ / path, ignored);
}

std::string size_text(std::uint64_t bytes) {
  char text[32];
  const double gib = static_cast<double>(bytes) / (1 << 30);
  if (gib >= 1)
    std::snprintf(text, sizeof text, "%.1f GiB", gib);
  else
    std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

std::vector<Check> examine(const Options& options) {
  const Host host(options.root);
  Checks out;
  check_kernel(host, options, out);
  check_limits(host, out);
  check_memory(host, out);
  check_time(host, out);
  check_space(options, out);
  return out;
}

}  // namespace starlane::doctor
