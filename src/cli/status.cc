// status: what runs, what it holds, and which fast paths are on.
#include <algorithm>
#include <cstdio>

#include "cli/command.h"
#include "cli/role_states.h"
#include "cli/terminal.h"

namespace starlane::cli {
namespace {

using nlohmann::json;

/// When a target's blocks were last read back, and how far that is.
std::string scrub_text(const json& target) {
  const json scrub = target.value("scrub", json::object());
  const std::uint64_t blocks = target.value("blocks", std::uint64_t{0});
  const std::string damaged =
      scrub.value("damaged", std::uint64_t{0}) == 0
          ? ""
          : ", " + human_count(scrub.value("damaged", std::uint64_t{0})) + " damaged";
  if (scrub.empty()) return "-";
  if (scrub.value("under_way", false))
    return human_count(scrub.value("blocks", std::uint64_t{0})) + " of " + human_count(blocks) +
           damaged;
  const auto ago = system_clock().wall().seconds - scrub.value("finished", std::int64_t{0});
  return human_duration(std::chrono::seconds(std::max<std::int64_t>(ago, 0))) + " ago" + damaged;
}

void print_usage(const json& status) {
  const json usage = status.value("usage", json::object());
  std::printf("volumes: %s live, %s in the trash, %s freed and not yet removed\n",
              human_bytes(usage.value("live_bytes", std::uint64_t{0})).c_str(),
              human_bytes(usage.value("trash_bytes", std::uint64_t{0})).c_str(),
              human_bytes(usage.value("held_bytes", std::uint64_t{0})).c_str());
}

void print_targets(const json& status) {
  Table targets(
      {"TARGET", "STORED", "FREE", "BLOCKS", "STATE", "READ BACK", "DEVICE", "DIRECTORY"});
  for (const json& target : status["targets"])
    targets.add({std::to_string(target.value("id", 0)),
                 human_bytes(target.value("stored_bytes", std::uint64_t{0})),
                 human_bytes(target.value("free_bytes", std::uint64_t{0})),
                 human_count(target.value("blocks", std::uint64_t{0})),
                 target.contains("problem") ? "cannot be reached" : target.value("state", ""),
                 scrub_text(target), target.value("device", "-"),
                 target.value("directory", target.value("endpoint", ""))});
  std::printf("\n%s", targets.render().c_str());
}

void print_sessions(const json& status) {
  Table sessions({"SESSION", "WHO", "WHAT", "AGE", "VOLUMES"});
  for (const json& session : status["sessions"])
    sessions.add({std::to_string(session.value("id", 0)), session.value("host", ""),
                  session.value("purpose", ""),
                  human_duration(Milliseconds(session.value("age_ms", 0))),
                  std::to_string(session.value("branches", 0))});
  std::printf("\n%s", sessions.render().c_str());
}

void print(const json& status) {
  std::printf("%s  %d volumes, %d data sets, %s stored\n",
              styled("site " + status.value("cluster", ""), Style::bold).c_str(),
              status.value("volumes", 0), status.value("data_sets", 0),
              human_bytes(status.value("stored_bytes", std::uint64_t{0})).c_str());
  print_usage(status);
  print_targets(status);
  print_sessions(status);
  const json roles = status.value("roles", json::object());
  for (const auto& [role, state] : roles.items()) {
    std::printf("\n%s  process %d\n", styled(role, Style::bold).c_str(), state.value("pid", 0));
    for (const json& place : state.value("metrics", json::array()))
      std::printf("  %-24s %s\n", "metrics", place.get<std::string>().c_str());
    const json figures = state.value("figures", json::object());
    for (const auto& [name, value] : figures.items())
      std::printf("  %-24s %s\n", name.c_str(),
                  value.is_string() ? value.get<std::string>().c_str() : value.dump().c_str());
  }
}

Status run(Program& program) {
  const auto connection = SL_TRY(program.connect());
  json status = SL_TRY(site_status(*connection));
  if (const Result<wire::Site> site = program.site(); site.ok())
    status["roles"] = role_states(*site);
  if (program.globals().json)
    std::printf("%s\n", status.dump().c_str());
  else
    print(status);
  return {};
}

}  // namespace

void add_status_command(Program& program) {
  program.add(program.app(), "status", "What runs, what it holds, which fast paths are on", "",
              [&program] { return run(program); });
}

}  // namespace starlane::cli
