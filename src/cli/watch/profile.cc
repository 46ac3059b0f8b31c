// profile: which operations and which processes take the mount's time.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/terminal.h"
#include "cli/watch/consoles.h"
#include "cli/watch/profile_table.h"

namespace starlane::cli {
namespace {

struct Wanted {
  double seconds = 0;  // 0: until Ctrl-C
};

constexpr std::size_t kRows = 20;  // of a table on a screen

Result<ProfileTable> look(const Consoles& consoles) {
  ProfileTable table;
  const auto answers = SL_TRY(consoles.ask("/profile", "GET"));
  for (const auto& answer : answers) SL_TRY(table.add(answer.body));
  return table;
}

std::string micro(double nanoseconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f us", nanoseconds / 1e3);
  return text;
}

std::vector<std::string> figures(const ProfileRow& row) {
  const auto count = row.took.count();
  const auto total = static_cast<double>(row.took.sum);
  return {human_count(count),
          human_duration(Nanoseconds(static_cast<std::int64_t>(row.took.sum))),
          micro(total / static_cast<double>(count)),
          micro(static_cast<double>(row.took.quantile(0.99))),
          human_bytes(row.bytes),
          human_count(row.errors)};
}

std::string table_of(const std::vector<ProfileRow>& rows, bool by_process) {
  std::vector<std::string> header = by_process ? std::vector<std::string>{"PID", "PROCESS"}
                                               : std::vector<std::string>{"OPERATION"};
  for (const char* title : {"COUNT", "TOTAL", "MEAN", "P99 <=", "BYTES", "ERRORS"})
    header.emplace_back(title);
  Table table(header);
  for (std::size_t i = 0; i < rows.size() && i < kRows; ++i) {
    std::vector<std::string> cells =
        by_process ? std::vector<std::string>{std::to_string(rows[i].pid), rows[i].process}
                   : std::vector<std::string>{rows[i].operation};
    for (std::string& cell : figures(rows[i])) cells.push_back(std::move(cell));
    table.add(std::move(cells));
  }
  return table.render();
}

std::string shown(const ProfileTable& table, Nanoseconds since) {
  std::string out = "in " + human_duration(since);
  if (table.dropped() != 0) out += ", and " + human_count(table.dropped()) + " operations missed";
  out += "\n\n" + table_of(table.by_operation(), false) + "\n" + table_of(table.by_process(), true);
  return out;
}

nlohmann::json json_of(const ProfileTable& table, double seconds) {
  nlohmann::json rows = nlohmann::json::array();
  for (const ProfileRow& row : table.rows())
    rows.push_back({{"pid", row.pid},
                    {"process", row.process},
                    {"operation", row.operation},
                    {"count", row.took.count()},
                    {"total_ns", row.took.sum},
                    {"p99_ns", row.took.quantile(0.99)},
                    {"bytes", row.bytes},
                    {"errors", row.errors}});
  return {{"seconds", seconds}, {"dropped", table.dropped()}, {"rows", rows}};
}

Status run(const Program& program, const Wanted& wanted) {
  const Consoles consoles(program, "");
  const ProfileTable before = SL_TRY(look(consoles));
  const Nanoseconds began = system_clock().boot();
  const bool live = on_terminal() && !program.globals().json;
  if (!live && wanted.seconds == 0)
    return Status(Errc::invalid, "for how long? Give --for SECONDS where this is no terminal");
  const Nanoseconds limit(static_cast<std::int64_t>(wanted.seconds * 1e9));
  for (bool more = true; more;) {
    const Nanoseconds left = limit - (system_clock().boot() - began);
    const Nanoseconds second = std::chrono::seconds(1);
    more = sleep_or_stop(wanted.seconds == 0 ? second : std::min(second, left));
    const Nanoseconds passed = system_clock().boot() - began;
    more = more && (wanted.seconds == 0 || passed < limit);
    const ProfileTable table = SL_TRY(look(consoles)).since(before);
    if (live)
      std::printf("\033[H\033[J%s", shown(table, passed).c_str());
    else if (!more && program.globals().json)
      std::printf("%s\n",
                  json_of(table, std::chrono::duration<double>(passed).count()).dump().c_str());
    else if (!more)
      std::printf("%s", shown(table, passed).c_str());
    std::fflush(stdout);
  }
  return {};
}

}  // namespace

void add_profile_command(Program& program) {
  const auto wanted = std::make_shared<Wanted>();
  CLI::App* command =
      program.add(program.app(), "profile", "Which operations and processes take a mount's time",
                  "  starlane profile                 a table that is refreshed, until Ctrl-C\n"
                  "  starlane --json profile --for 5  once, at the end\n"
                  "Counted by the mount itself, from when this begins: times are from the kernel's "
                  "request to the "
                  "answer.\n",
                  [&program, wanted] { return run(program, *wanted); });
  command->add_option("--for", wanted->seconds, "End after so many seconds (5, or 5s)")
      ->transform(CLI::AsNumberWithUnit(std::map<std::string, double>{{"s", 1}, {"min", 60}}))
      ->check(CLI::Range(0.0, 86'400.0));
}

}  // namespace starlane::cli
