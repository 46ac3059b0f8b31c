// What a benchmark found: rows of one table, with units, the ceiling of this machine that was
// measured in the same rounds, and their ratio; for people, or as JSON. Values; one thread.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace starlane::cli::bench {

enum class Unit : std::uint8_t {
  bytes_per_second,
  per_second,
  count,
  percent,
  ratio,
  cpu_seconds,
  seconds
};

/// What a row should reach, where that is said: of its ratio, or of the value itself.
struct Bar {
  enum class Of : std::uint8_t { nothing, ratio_at_least, value_below, value_at_most };
  Of of = Of::nothing;
  double at = 0;
};

struct Row {
  std::string line;  // its name, for --only and --list
  std::string what;
  std::string how;  // mode, threads
  Unit unit = Unit::bytes_per_second;
  std::vector<double> values;      // one a round
  std::vector<double> ceilings;    // of the same rounds; empty: nothing to compare with
  std::string against;             // what the ceiling is, or a remark
  std::vector<double> daemon_cpu;  // CPU seconds of Starlane's processes a GB; empty: not counted
  Bar bar{};
};

double median(std::vector<double> values);
/// Median of the rounds' own ratios: what a neighbour takes from a round, it takes from both sides.
std::optional<double> ratio_of(const Row& row);
/// Nothing where no bar is set.
std::optional<bool> reached(const Row& row);

struct Machine {
  unsigned cores = 0;
  std::uint64_t memory_bytes = 0;
  std::string kernel;
  std::string where;  // "/dev/shm (tmpfs)"
  double load = 0;    // over the last minute, when it began
  bool root = false;
};
Machine this_machine(const std::string& where);

struct Settings {
  std::uint64_t size_bytes = 0;
  std::size_t runs = 3;
};

/// What stands above the table, and its header; then a line for each row, as it is found.
std::string render(const Machine& machine, const Settings& settings);
std::string render(const Row& row);
nlohmann::json to_json(const Machine& machine, const Settings& settings,
                       const std::vector<Row>& rows);

}  // namespace starlane::cli::bench
