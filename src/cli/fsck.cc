// fsck: metadata against blocks, and rows against each other.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/terminal.h"
#include "wire/fsck.h"

namespace starlane::cli {
namespace {

using nlohmann::json;

constexpr std::size_t kShownProblems = 1000;

json to_json(const keeper::FsckReport& report) {
  return {{"inodes", report.inodes},
          {"entries", report.entries},
          {"references", report.references},
          {"live", report.live},
          {"dead", report.dead},
          {"reserved", report.reserved},
          {"targets", report.targets},
          {"blocks", report.blocks},
          {"block_bytes", report.block_bytes},
          {"verified_blocks", report.verified_blocks},
          {"unsynced", report.unsynced},
          {"clean", report.clean()}};
}

void print(const keeper::FsckReport& report, Nanoseconds took) {
  std::printf("%s inodes, %s names, %s slices, %s blocks (%s) on %s targets%s, in %s\n",
              human_count(report.inodes).c_str(), human_count(report.entries).c_str(),
              human_count(report.references).c_str(), human_count(report.blocks).c_str(),
              human_bytes(report.block_bytes).c_str(), human_count(report.targets).c_str(),
              report.verified_blocks > 0 ? ", every block read back" : "",
              human_duration(took).c_str());
  if (report.unsynced > 0)
    std::printf(
        "%s blocks of writes that were not synced went with a crash; the files read as an "
        "error there until they are written anew\n",
        human_count(report.unsynced).c_str());
  if (report.clean()) std::printf("%s\n", styled("clean", Style::green).c_str());
}

Status run(Program& program, const keeper::FsckOptions& options) {
  const Nanoseconds started = system_clock().boot();
  const auto connection = SL_TRY(program.connect());
  const bool as_json = program.globals().json;
  json problems = json::array(), lost = json::array();
  const auto told = [&](const keeper::FsckProblem& problem) {
    json& list = problem.kind == keeper::FsckProblem::Kind::unsynced ? lost : problems;
    if (list.size() >= kShownProblems) return;
    list.push_back(problem.text);
    if (!as_json)
      std::printf("%s %s\n", styled(keeper::name_of(problem.kind), Style::yellow).c_str(),
                  problem.text.c_str());
  };
  const keeper::FsckReport report = SL_TRY(wire::fsck(*connection, options, told));
  if (as_json) {
    json out = to_json(report);
    out["problems"] = std::move(problems);
    out["lost_unsynced"] = std::move(lost);
    std::printf("%s\n", out.dump().c_str());
  } else {
    print(report, system_clock().boot() - started);
  }
  if (report.clean()) return {};
  return Status(Errc::corrupt, "fsck found problems: " + std::to_string(report.missing) +
                                   " missing, " + std::to_string(report.corrupt) + " corrupt, " +
                                   std::to_string(report.wrong) + " wrong, " +
                                   std::to_string(report.orphans) + " orphaned, " +
                                   std::to_string(report.rows) + " in rows");
}

}  // namespace

void add_fsck_command(Program& program) {
  auto options = std::make_shared<keeper::FsckOptions>();
  program
      .add(program.app(), "fsck",
           "Checks the site while it runs: names, slices, blocks; changes nothing",
           "  starlane fsck\n  starlane fsck --verify      also reads every block back\n",
           [&program, options] { return run(program, *options); })
      ->add_flag("--verify", options->verify_blocks, "Also read every block back and check it");
}

}  // namespace starlane::cli
