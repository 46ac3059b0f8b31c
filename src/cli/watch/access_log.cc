// access-log: begins and ends the access log of a running mount.
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/terminal.h"
#include "cli/watch/consoles.h"
#include "wire/json_value.h"

namespace starlane::cli {
namespace {

Status print(const Program& program, const std::vector<Consoles::Answer>& answers) {
  for (const Consoles::Answer& answer : answers) {
    if (program.globals().json) {
      std::printf("%s\n", answer.body.c_str());
      continue;
    }
    const auto state = nlohmann::json::parse(answer.body, nullptr, false);
    const auto file = wire::value_in<std::string>(state, "file", "");
    std::printf("%s  %s\n", answer.process.c_str(),
                file.empty() ? "no access log is being written"
                             : ("writes " + file + ", " +
                                human_count(wire::value_in(state, "dropped", std::uint64_t{0})) +
                                " operations missed")
                                   .c_str());
  }
  return {};
}

Status ask(const Program& program, const std::string& query) {
  const Consoles consoles(program, "");
  return print(program,
               SL_TRY(consoles.ask("/access-log" + query, query.empty() ? "GET" : "POST")));
}

Status start(const Program& program, const std::string& file) {
  std::error_code failed;
  const std::string whole = std::filesystem::absolute(file, failed).string();
  return ask(program, "?file=" + wire::in_query(whole));
}

}  // namespace

void add_access_log_command(Program& program) {
  CLI::App* command =
      program.add(program.app(), "access-log", "A line for each operation of a mount, in a file",
                  "  starlane access-log start /tmp/work.log\n"
                  "  starlane access-log stop\n"
                  "  starlane replay /tmp/work.log --into /mnt/starlane/volumes/try\n"
                  "What the mount has no time to write is left out and counted; nobody waits.\n",
                  {});
  command->require_subcommand(1);
  const auto file = std::make_shared<std::string>();
  program
      .add(*command, "start", "Begins it", "", [&program, file] { return start(program, *file); })
      ->add_option("file", *file, "New, or an access log to append to")
      ->required();
  program.add(*command, "stop", "Ends it", "", [&program] { return ask(program, "?stop=1"); });
  program.add(*command, "show", "Whether one is written", "",
              [&program] { return ask(program, ""); });
}

}  // namespace starlane::cli
