#include "cli/bench/report.h"

#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <thread>

#include "cli/terminal.h"

namespace starlane::cli::bench {
namespace {

constexpr long kTmpfsMagic = 0x01021994;

template <typename... Args>
std::string format(const char* pattern, Args... args) {
  char text[160];
  std::snprintf(text, sizeof text, pattern, args...);
  return text;
}

std::string shown(Unit unit, double value) {
  switch (unit) {
    case Unit::bytes_per_second:
      return human_rate(value);
    case Unit::per_second:
      return human_count(static_cast<std::uint64_t>(std::llround(value))) + " /s";
    case Unit::count:
      return human_count(static_cast<std::uint64_t>(std::llround(value)));
    case Unit::percent:
      return format("%.2f %%", value);
    case Unit::ratio:
      return format("%.2f x", value);
    case Unit::cpu_seconds:
    case Unit::seconds:
      return format("%.3f s", value);
  }
  return "";
}

const char* name_of(Unit unit) {
  static constexpr const char* kNames[] = {"bytes/s",        "1/s", "count", "percent", "ratio",
                                           "cpu seconds/GB", "s"};
  return kNames[static_cast<int>(unit)];
}

std::string shown(const Row& row, const Bar& bar) {
  switch (bar.of) {
    case Bar::Of::nothing:
      return "";
    case Bar::Of::ratio_at_least:
      return format("%.2f", bar.at);
    case Bar::Of::value_below:
      return "< " + shown(row.unit, bar.at);
    case Bar::Of::value_at_most:
      return "<= " + shown(row.unit, bar.at);
  }
  return "";
}

struct Cell {
  std::string text;
  std::optional<bool> good{};  // green or yellow
};
constexpr std::size_t kColumns = 8;
constexpr const char* kHeader[kColumns] = {"WHAT",  "HOW",   "MEASURED", "CEILING",
                                           "RATIO", "REACH", "CPU s/GB", "AGAINST"};
// Fixed, so that a row is shown as soon as it is known.
constexpr std::size_t kWidths[kColumns] = {68, 27, 12, 12, 6, 9, 8, 0};
constexpr std::size_t kFirstNumber = 2, kAfterNumbers = 7;

std::string line_of(const std::array<Cell, kColumns>& cells, Style style) {
  std::string out;
  for (std::size_t i = 0; i < kColumns; ++i) {
    const std::string& text = cells[i].text;
    const std::string pad(kWidths[i] > text.size() ? kWidths[i] - text.size() : 0, ' ');
    const Style own = cells[i].good ? (*cells[i].good ? Style::green : Style::yellow) : style;
    const bool right = i >= kFirstNumber && i < kAfterNumbers;
    out += (right ? pad : "") + styled(text, own) + (right || i + 1 == kColumns ? "" : pad);
    if (i + 1 < kColumns) out += "  ";
  }
  return out + "\n";
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::optional<double> ratio_of(const Row& row) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(row.values.size(), row.ceilings.size()); ++i)
    if (row.ceilings[i] > 0) ratios.push_back(row.values[i] / row.ceilings[i]);
  if (ratios.empty()) return std::nullopt;
  return median(std::move(ratios));
}

std::optional<bool> reached(const Row& row) {
  switch (row.bar.of) {
    case Bar::Of::nothing:
      return std::nullopt;
    case Bar::Of::ratio_at_least:
      return ratio_of(row).value_or(0) >= row.bar.at;
    case Bar::Of::value_below:
      return median(row.values) < row.bar.at;
    case Bar::Of::value_at_most:
      return median(row.values) <= row.bar.at;
  }
  return std::nullopt;
}

Machine this_machine(const std::string& where) {
  Machine machine;
  machine.cores = std::max(1U, std::thread::hardware_concurrency());
  machine.root = ::geteuid() == 0;
  struct sysinfo info {};
  if (::sysinfo(&info) == 0) machine.memory_bytes = std::uint64_t{info.totalram} * info.mem_unit;
  struct utsname name {};
  if (::uname(&name) == 0) machine.kernel = name.release;
  struct statfs about {};
  const bool in_memory = ::statfs(where.c_str(), &about) == 0 && about.f_type == kTmpfsMagic;
  machine.where = where + (in_memory ? " (tmpfs)" : " (not in memory: its device is measured too)");
  double loads[1] = {0};
  if (::getloadavg(loads, 1) == 1) machine.load = loads[0];
  return machine;
}

std::string render(const Machine& machine, const Settings& settings) {
  std::string out = styled("starlane bench", Style::bold) +
                    format("  %u cores, %s, kernel %s", machine.cores,
                           human_bytes(machine.memory_bytes).c_str(), machine.kernel.c_str()) +
                    ", files in " + machine.where +
                    format("; %s files, medians of %zu runs\n",
                           human_bytes(settings.size_bytes).c_str(), settings.runs);
  if (machine.load > machine.cores * 0.5)
    out += styled(format("The load was %.1f when it began: others use this machine, and what they "
                         "take is missing here.\n",
                         machine.load),
                  Style::yellow);
  std::array<Cell, kColumns> header;
  for (std::size_t i = 0; i < kColumns; ++i) header[i].text = kHeader[i];
  return out + "\n" + line_of(header, Style::bold);
}

std::string render(const Row& row) {
  const std::optional<double> ratio = ratio_of(row);
  const std::optional<bool> good = reached(row);
  const bool by_ratio = row.bar.of == Bar::Of::ratio_at_least;
  const std::optional<bool> none;
  return line_of({Cell{row.what},
                  {row.how},
                  {shown(row.unit, median(row.values)), by_ratio ? none : good},
                  {row.ceilings.empty() ? "-" : shown(row.unit, median(row.ceilings))},
                  {ratio ? format("%.2f", *ratio) : "-", by_ratio ? good : none},
                  {shown(row, row.bar)},
                  {row.daemon_cpu.empty() ? "-" : format("%.3f", median(row.daemon_cpu))},
                  {row.against}},
                 Style::plain);
}

nlohmann::json to_json(const Machine& machine, const Settings& settings,
                       const std::vector<Row>& rows) {
  auto list = nlohmann::json::array();
  for (const Row& row : rows) {
    nlohmann::json one{{"line", row.line},
                       {"what", row.what},
                       {"how", row.how},
                       {"unit", name_of(row.unit)},
                       {"value", median(row.values)},
                       {"values", row.values},
                       {"against", row.against}};
    if (!row.ceilings.empty()) {
      one["ceiling"] = median(row.ceilings);
      one["ceilings"] = row.ceilings;
    }
    if (const auto ratio = ratio_of(row)) one["ratio"] = *ratio;
    if (const auto good = reached(row)) one["reached"] = *good;
    if (row.bar.of != Bar::Of::nothing) one["reach"] = row.bar.at;
    if (!row.daemon_cpu.empty()) one["daemon_cpu_seconds_per_gb"] = median(row.daemon_cpu);
    list.push_back(std::move(one));
  }
  return {{"machine",
           {{"cores", machine.cores},
            {"memory_bytes", machine.memory_bytes},
            {"kernel", machine.kernel},
            {"where", machine.where},
            {"load", machine.load},
            {"root", machine.root}}},
          {"size_bytes", settings.size_bytes},
          {"runs", settings.runs},
          {"rows", std::move(list)}};
}

}  // namespace starlane::cli::bench
