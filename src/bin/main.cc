// The one binary: every role and every command.
#include "cli/command.h"

int main(int argc, char** argv) {
  starlane::cli::Program program;
  starlane::cli::add_running_commands(program);
  starlane::cli::add_upgrade_command(program);
  starlane::cli::add_status_command(program);
  starlane::cli::add_volume_commands(program);
  starlane::cli::add_trash_commands(program);
  starlane::cli::add_dataset_commands(program);
  starlane::cli::add_warm_command(program);
  starlane::cli::add_fsck_command(program);
  starlane::cli::add_scrub_command(program);
  starlane::cli::add_bench_command(program);
  starlane::cli::add_stats_command(program);
  starlane::cli::add_profile_command(program);
  starlane::cli::add_access_log_command(program);
  starlane::cli::add_replay_command(program);
  starlane::cli::add_doctor_command(program);
  starlane::cli::add_debug_command(program);
  return program.run(argc, argv);
}
