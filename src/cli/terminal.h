// How commands speak to a person: sizes, rates, times, tables, one progress line. Colour and
// progress only on a terminal. Single-threaded but for Progress.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/mutex.h"

namespace starlane::cli {

std::string human_bytes(std::uint64_t bytes);      // "1.4 GiB"
std::string human_rate(double bytes_per_second);   // "2.61 GB/s", as devices are sold
std::string human_count(std::uint64_t count);      // "12 345"
std::string human_duration(Nanoseconds duration);  // "1.2 s", "3 min 20 s"

enum class Style : std::uint8_t { plain, bold, dim, green, yellow, red, cyan };
/// The text in a style where standard output is a terminal and NO_COLOR is not set; else the text.
std::string styled(std::string_view text, Style style);
bool on_terminal();

/// Columns as wide as their widest cell; numbers (cells that begin with a digit) to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : header_(std::move(header)) {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string render() const;

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

/// One line that is rewritten in place: what, how far, how fast, how long still. Silent when
/// standard error is not a terminal. `advance` from any thread.
class Progress {
 public:
  Progress(std::string what, std::uint64_t total_bytes);
  ~Progress();
  void advance(std::uint64_t bytes) SL_EXCLUDES(m_);

 private:
  void draw() SL_REQUIRES(m_);

  const std::string what_;
  const std::uint64_t total_;
  const Nanoseconds started_;
  const bool visible_;
  Mutex m_;
  std::uint64_t done_ SL_GUARDED_BY(m_) = 0;
  Nanoseconds drawn_ SL_GUARDED_BY(m_){0};
};

}  // namespace starlane::cli
