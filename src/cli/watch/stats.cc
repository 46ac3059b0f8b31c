// stats: what a running site does, a line a second.
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/terminal.h"
#include "cli/watch/consoles.h"
#include "cli/watch/rates.h"

namespace starlane::cli {
namespace {

struct Wanted {
  double interval = 1;  // seconds
  std::uint64_t count = 0;
  std::string at;
};

constexpr std::uint64_t kLinesUnderHeader = 20;

std::string number(double value, const char* format) {
  if (std::isnan(value)) return "-";
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

struct Column {
  const char* title;
  int width;
  std::string (*cell)(const Rates&);
};
const Column kColumns[] = {
    {"OPS/S", 8, [](const Rates& r) { return number(r.operations, "%.0f"); }},
    {"OP ms", 8, [](const Rates& r) { return number(r.operation_ms, "%.3f"); }},
    {"READ MB/s", 10, [](const Rates& r) { return number(r.read_bytes / 1e6, "%.1f"); }},
    {"WRITE MB/s", 11, [](const Rates& r) { return number(r.written_bytes / 1e6, "%.1f"); }},
    {"FETCH MB/s", 11, [](const Rates& r) { return number(r.fetched_bytes / 1e6, "%.1f"); }},
    {"PUT MB/s", 9, [](const Rates& r) { return number(r.put_bytes / 1e6, "%.1f"); }},
    {"META/S", 7, [](const Rates& r) { return number(r.meta_calls, "%.0f"); }},
    {"META ms", 8, [](const Rates& r) { return number(r.meta_ms, "%.3f"); }},
    {"STORE ms", 9, [](const Rates& r) { return number(r.store_ms, "%.3f"); }},
    {"COMMIT ms", 10, [](const Rates& r) { return number(r.engine_ms, "%.3f"); }},
    {"BLOCKS %", 9, [](const Rates& r) { return number(r.block_hits * 100, "%.0f"); }},
    {"NAMES %", 8, [](const Rates& r) { return number(r.name_hits * 100, "%.0f"); }},
    {"DIRTY MB", 9, [](const Rates& r) { return number(r.dirty_bytes / 1e6, "%.1f"); }},
};

void print_header() {
  std::string line;
  for (const Column& column : kColumns)
    line += std::string(static_cast<std::size_t>(column.width) - std::string(column.title).size(),
                        ' ') +
            column.title;
  std::printf("%s\n", styled(line, Style::bold).c_str());
}

void print_line(const Rates& rates) {
  for (const Column& column : kColumns)
    std::printf("%*s", column.width, column.cell(rates).c_str());
  std::printf("\n");
}

void print_json(const Rates& rates) {
  const auto share = [](double value) {
    return std::isnan(value) ? nlohmann::json() : nlohmann::json(value);
  };
  const nlohmann::json line{{"operations_per_second", rates.operations},
                            {"failures_per_second", rates.failures},
                            {"operation_ms", rates.operation_ms},
                            {"read_bytes_per_second", rates.read_bytes},
                            {"written_bytes_per_second", rates.written_bytes},
                            {"fetched_bytes_per_second", rates.fetched_bytes},
                            {"put_bytes_per_second", rates.put_bytes},
                            {"meta_calls_per_second", rates.meta_calls},
                            {"meta_ms", rates.meta_ms},
                            {"store_ms", rates.store_ms},
                            {"engine_commits_per_second", rates.engine_commits},
                            {"engine_commit_ms", rates.engine_ms},
                            {"block_cache_hit_share", share(rates.block_hits)},
                            {"name_cache_hit_share", share(rates.name_hits)},
                            {"dirty_bytes", rates.dirty_bytes},
                            {"in_flight", rates.in_flight}};
  std::printf("%s\n", line.dump().c_str());
}

Status run(const Program& program, const Wanted& wanted) {
  const Consoles consoles(program, wanted.at);
  Page before = SL_TRY(consoles.metrics());
  Nanoseconds then = system_clock().boot();
  for (std::uint64_t line = 0; wanted.count == 0 || line < wanted.count; ++line) {
    if (!sleep_or_stop(Nanoseconds(static_cast<std::int64_t>(wanted.interval * 1e9)))) return {};
    Page page = SL_TRY(consoles.metrics());
    const Nanoseconds now = system_clock().boot();
    const Rates rates =
        rates_between(before, page, std::chrono::duration<double>(now - then).count());
    if (!program.globals().json && line % kLinesUnderHeader == 0) print_header();
    program.globals().json ? print_json(rates) : print_line(rates);
    std::fflush(stdout);
    before = std::move(page);
    then = now;
  }
  return {};
}

}  // namespace

void add_stats_command(Program& program) {
  const auto wanted = std::make_shared<Wanted>();
  CLI::App* command = program.add(
      program.app(), "stats", "What a running site does, a line a second",
      "  starlane stats\n"
      "  starlane --json stats --interval 0.5 --count 10\n"
      "OP, META, STORE and COMMIT are mean times: of the kernel's requests, of calls as the client "
      "saw them, of the engine's commits.\nBLOCKS and NAMES are the shares found in the caches.\n",
      [&program, wanted] { return run(program, *wanted); });
  command->add_option("--interval", wanted->interval, "Seconds between lines")
      ->check(CLI::Range(0.05, 3600.0))
      ->capture_default_str();
  command->add_option("--count", wanted->count, "Lines; 0: until Ctrl-C")->capture_default_str();
  command->add_option("--at", wanted->at, "Only the process that serves metrics at HOST:PORT");
}

}  // namespace starlane::cli
