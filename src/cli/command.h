// What all commands share: the options before the command's name, how a failure is told, and how a
// command reaches its site. One process, one command; single-threaded.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "wire/connection.h"
#include "wire/site.h"

namespace starlane::cli {

struct Globals {
  std::string directory;  // --dir, STARLANE_DIR
  bool json = false;
  std::string meta;      // --meta: a site elsewhere
  std::string key_file;  // --key
};

/// The program, its options and where commands put their outcome.
class Program {
 public:
  Program();

  CLI::App& app() { return app_; }
  const Globals& globals() const { return globals_; }
  /// As the program was called, its name first.
  const std::vector<std::string>& words() const { return words_; }

  /// A command under `parent` that runs `body`; its failure becomes one sentence and exit code 1.
  CLI::App* add(CLI::App& parent, const std::string& name, const std::string& text,
                const std::string& examples, std::function<Status()> body);

  /// The site of --dir; invalid with what to do when none is given.
  Result<wire::Site> site() const;
  Result<std::unique_ptr<wire::Connection>> connect() const;

  /// Parses, runs, answers the exit code: 0, 1 a failure, 2 wrong usage.
  int run(int argc, char** argv);

 private:
  CLI::App app_;
  Globals globals_;
  std::vector<std::string> words_;
  Status outcome_;
};

/// What umount2(2) said of a mountpoint.
Status not_unmounted(const std::string& mountpoint, int error);

/// not_found, with the name, when there is none.
Result<pb::Volume> volume_named(MetaService& meta, const std::string& name);

// One for each file of commands.
void add_running_commands(Program& program);  // up down mount umount meta store keeper
void add_upgrade_command(Program& program);
void add_status_command(Program& program);
void add_volume_commands(Program& program);
void add_trash_commands(Program& program);
void add_scrub_command(Program& program);
void add_dataset_commands(Program& program);
void add_tree_mount_commands(Program& program, CLI::App& group);  // of `dataset`
void add_warm_command(Program& program);
void add_fsck_command(Program& program);
void add_bench_command(Program& program);
void add_stats_command(Program& program);
void add_profile_command(Program& program);
void add_access_log_command(Program& program);
void add_replay_command(Program& program);
void add_doctor_command(Program& program);
void add_debug_command(Program& program);

}  // namespace starlane::cli
