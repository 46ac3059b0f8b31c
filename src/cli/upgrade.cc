// upgrade [BINARY]: a mount goes on with another build while it is used.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "cli/command.h"
#include "cli/role_states.h"
#include "common/errno.h"
#include "wire/holding.h"

namespace starlane::cli {
namespace {

/// That the program is there and one of ours is seen before anything ends.
Status check_program(const std::string& path) {
  std::string call = path;
  std::vector<char*> argv{call.data(), const_cast<char*>("--version"), nullptr};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = -1;
  const int refused = ::posix_spawn(&child, path.c_str(), &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (refused != 0) return system_error("cannot run " + path, refused);
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return Status(Errc::invalid, path + " does not run here: `" + path + " --version` fails");
}

Status upgrade(const Program& program, const std::string& mountpoint, const std::string& binary) {
  std::string where = mountpoint;
  if (where.empty()) {
    const wire::Site site = SL_TRY(program.site());
    const nlohmann::json roles = role_states(site);
    if (!roles.contains("mount"))
      return Status(Errc::unavailable, "nothing of this site is mounted here; give --mount DIR");
    where = roles["mount"].value(nlohmann::json::json_pointer("/figures/mountpoint"), "");
  }
  std::error_code failed;
  const auto path =
      std::filesystem::canonical(binary.empty() ? std::string("/proc/self/exe") : binary, failed);
  if (failed) return system_error("cannot find " + binary, failed.value());
  SL_TRY(check_program(path.string()));
  const int pid = SL_TRY(wire::ask_upgrade(where, path.string()));
  std::printf("upgraded  %s  (process %d runs %s)\n", where.c_str(), pid, path.c_str());
  return {};
}

}  // namespace

void add_upgrade_command(Program& program) {
  auto mountpoint = std::make_shared<std::string>();
  auto binary = std::make_shared<std::string>();
  CLI::App* command = program.add(
      program.app(), "upgrade", "Goes on with another build, under load",
      "  starlane --dir /srv/starlane upgrade /usr/local/bin/starlane\n"
      "  starlane upgrade --mount /mnt/starlane      this very program serves from now on\n",
      [&program, mountpoint, binary] { return upgrade(program, *mountpoint, *binary); });
  command->add_option("binary", *binary, "The new program; without it: this one");
  command->add_option("--mount", *mountpoint, "Which mount; without it: that of --dir");
}

}  // namespace starlane::cli
