// replay: an access log, run again.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/terminal.h"
#include "cli/watch/replay.h"

namespace starlane::cli {
namespace {

struct Wanted {
  std::string file, into;
};

double mean_us(Nanoseconds sum, std::uint64_t count) {
  return static_cast<double>(sum.count()) / 1e3 / static_cast<double>(count);
}

std::string micro(double us) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f us", us);
  return text;
}

std::string times(double ratio) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", ratio);
  return text;
}

void print(const Replay& replay) {
  Table table(
      {"OPERATION", "COUNT", "LOGGED", "NOW", "NOW/LOGGED", "BYTES", "OUTCOMES THAT DIFFER"});
  for (const auto& [name, line] : replay.lines()) {
    const double then = mean_us(line.logged, line.count), now = mean_us(line.replayed, line.count);
    table.add({name, human_count(line.count), micro(then), micro(now),
               then == 0 ? "-" : times(now / then), human_bytes(line.bytes),
               human_count(line.differ)});
  }
  std::printf("%s", table.render().c_str());
  if (replay.left_out() != 0)
    std::printf("%s operations have no counterpart in a program and were left out\n",
                human_count(replay.left_out()).c_str());
}

void print_json(const Replay& replay) {
  nlohmann::json operations = nlohmann::json::object();
  for (const auto& [name, line] : replay.lines())
    operations[name] = {{"count", line.count},
                        {"differ", line.differ},
                        {"bytes", line.bytes},
                        {"logged_us", mean_us(line.logged, line.count)},
                        {"now_us", mean_us(line.replayed, line.count)}};
  std::printf(
      "%s\n",
      nlohmann::json{{"operations", operations}, {"left_out", replay.left_out()}}.dump().c_str());
}

Status run(const Program& program, const Wanted& wanted) {
  const auto log = SL_TRY(read_access_log(wanted.file));
  Replay replay(wanted.into);
  SL_TRY(replay.prepare(log));
  replay.run(log);
  program.globals().json ? print_json(replay) : print(replay);
  return {};
}

}  // namespace

void add_replay_command(Program& program) {
  const auto wanted = std::make_shared<Wanted>();
  CLI::App* command =
      program.add(program.app(), "replay", "Runs an access log again, elsewhere, and compares",
                  "  starlane replay /tmp/work.log --into /mnt/starlane/volumes/try\n"
                  "One operation after the other, as fast as they go. LOGGED is the time that the "
                  "mount took, NOW "
                  "that of the whole system call.\n",
                  [&program, wanted] { return run(program, *wanted); });
  command->add_option("file", wanted->file, "An access log")->required();
  command->add_option("--into", wanted->into, "An empty directory; made if it is missing")
      ->required();
}

}  // namespace starlane::cli
