#include "cli/terminal.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>

namespace starlane::cli {
namespace {

double seconds_of(Nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }

template <typename... Args>
std::string format(const char* pattern, Args... args) {
  char text[128];
  std::snprintf(text, sizeof text, pattern, args...);
  return text;
}

/// Columns on a screen: code points, since names may be of any script.
std::size_t width_of(std::string_view text) {
  std::size_t width = 0;
  bool escape = false;
  for (const char c : text) {
    if (c == '\033')
      escape = true;
    else if (escape)
      escape = c != 'm';
    else
      width += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }
  return width;
}

bool is_number(std::string_view cell) {
  return !cell.empty() && (std::isdigit(static_cast<unsigned char>(cell[0])) || cell == "-");
}

}  // namespace

std::string human_bytes(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) value /= 1024, ++unit;
  return unit == 0 ? format("%.0f B", value)
                   : format(value < 10 ? "%.2f %s" : "%.1f %s", value, kUnits[unit]);
}

std::string human_rate(double bytes_per_second) {
  if (bytes_per_second >= 1e9) return format("%.2f GB/s", bytes_per_second / 1e9);
  if (bytes_per_second >= 1e6) return format("%.1f MB/s", bytes_per_second / 1e6);
  return format("%.1f kB/s", bytes_per_second / 1e3);
}

std::string human_count(std::uint64_t count) {
  std::string digits = std::to_string(count);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), " ");
  return digits;
}

std::string human_duration(Nanoseconds duration) {
  const double seconds = seconds_of(duration);
  if (seconds < 1e-3) return format("%.0f us", seconds * 1e6);
  if (seconds < 1) return format("%.0f ms", seconds * 1e3);
  if (seconds < 60) return format("%.1f s", seconds);
  const auto whole = static_cast<long long>(seconds);
  if (whole < 3600) return format("%lld min %lld s", whole / 60, whole % 60);
  return format("%lld h %lld min", whole / 3600, whole % 3600 / 60);
}

bool on_terminal() {
  static const bool yes = ::isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  return yes;
}

std::string styled(std::string_view text, Style style) {
  static constexpr const char* kCodes[] = {"", "1", "2", "32", "33", "31", "36"};
  if (!on_terminal() || style == Style::plain) return std::string(text);
  return "\033[" + std::string(kCodes[static_cast<int>(style)]) + "m" + std::string(text) +
         "\033[0m";
}

std::string Table::render() const {
  std::vector<std::size_t> widths;
  for (const std::string& cell : header_) widths.push_back(width_of(cell));
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size() && i < widths.size(); ++i)
      widths[i] = std::max(widths[i], width_of(row[i]));
  const auto line = [&](const std::vector<std::string>& cells, bool is_header) {
    std::string out;
    for (std::size_t i = 0; i < cells.size() && i < widths.size(); ++i) {
      const std::string pad(widths[i] - width_of(cells[i]), ' ');
      const std::string shown = is_header ? styled(cells[i], Style::bold) : cells[i];
      const bool right =
          is_number(is_header && !rows_.empty() && i < rows_[0].size() ? rows_[0][i] : cells[i]);
      out += right ? pad + shown : shown + pad;
      if (i + 1 < cells.size()) out += "  ";
    }
    while (!out.empty() && out.back() == ' ') out.pop_back();
    return out + "\n";
  };
  std::string out = line(header_, true);
  for (const auto& row : rows_) out += line(row, false);
  return out;
}

Progress::Progress(std::string what, std::uint64_t total_bytes)
    : what_(std::move(what)),
      total_(total_bytes),
      started_(system_clock().boot()),
      visible_(::isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (visible_) std::fprintf(stderr, "\r\033[K");
}

void Progress::advance(std::uint64_t bytes) {
  MutexLock lock(m_);
  done_ += bytes;
  const Nanoseconds now = system_clock().boot();
  if (!visible_ || (now - drawn_ < Milliseconds(100) && done_ < total_)) return;
  drawn_ = now;
  draw();
}

void Progress::draw() {
  constexpr std::size_t kCells = 24;
  const double seconds = std::max(1e-3, seconds_of(system_clock().boot() - started_));
  const double rate = static_cast<double>(done_) / seconds;
  const double share =
      total_ == 0 ? 1 : std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_));
  std::string bar;
  for (std::size_t i = 0; i < kCells; ++i)
    bar += static_cast<double>(i) < share * kCells ? "█" : "░";
  const std::uint64_t left = total_ > done_ ? total_ - done_ : 0;
  const auto wait =
      Nanoseconds(static_cast<std::int64_t>(rate > 0 ? static_cast<double>(left) / rate * 1e9 : 0));
  std::fprintf(stderr, "\r\033[K%s %s %3.0f %%  %s of %s  %s  %s left", what_.c_str(), bar.c_str(),
               share * 100, human_bytes(done_).c_str(), human_bytes(total_).c_str(),
               human_rate(rate).c_str(), human_duration(wait).c_str());
  std::fflush(stderr);
}

}  // namespace starlane::cli
