#include "cli/bench/workplace.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "cli/bench/process.h"
#include "common/clock.h"
#include "common/errno.h"
#include "common/unique_fd.h"

namespace starlane::cli::bench {
namespace fs = std::filesystem;
namespace {

constexpr const char* kPrefix = "starlane-bench-";
constexpr Nanoseconds kPatience = std::chrono::seconds(30);

sigset_t watched_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) ::sigaddset(&set, number);
  return set;
}

/// Mounts at or below a directory, the innermost first.
std::vector<std::string> mounts_below(const fs::path& directory) {
  std::vector<std::string> found;
  std::ifstream in("/proc/self/mountinfo");
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string word;
    for (int i = 0; i < 5; ++i) words >> word;
    if (word.starts_with(directory.string() + "/")) found.insert(found.begin(), word);
  }
  return found;
}

void remove_directory(const fs::path& directory) {
  for (const std::string& mount : mounts_below(directory))
    if (::umount2(mount.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0 && errno == EPERM) {
      [[maybe_unused]] const Status ignored = run_tool({"fusermount3", "-u", "-z", mount});
    }
  if (!mounts_below(directory).empty()) return;  // never delete through a mount
  std::error_code ignored;
  fs::remove_all(directory, ignored);
}

/// Of runs whose process is gone.
void remove_leftovers(const fs::path& where) {
  std::vector<fs::path> old;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(where, ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kPrefix)) continue;
    const char* const digits = name.c_str() + std::string_view(kPrefix).size();
    pid_t pid = 0;
    std::from_chars(digits, name.c_str() + name.size(), pid);
    if (pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH) old.push_back(entry.path());
  }
  for (const fs::path& directory : old) remove_directory(directory);
}

void tell(int fd, const Status& status) {
  if (status.ok()) return;
  const std::string text = std::to_string(static_cast<int>(status.code())) + " " + status.text();
  [[maybe_unused]] const auto n = ::write(fd, text.data(), text.size());
}

Status told(int fd) {
  std::string text;
  char piece[512];
  for (ssize_t n = 0; (n = ::read(fd, piece, sizeof piece)) > 0;)
    text.append(piece, static_cast<std::size_t>(n));
  const std::size_t at = text.find(' ');
  int code = 0;
  std::from_chars(text.data(), text.data() + text.size(), code);
  if (at == std::string::npos || code == 0) return {};
  return Status(static_cast<Errc>(code), text.substr(at + 1));
}

/// Until the child ends (its wait status) or somebody interrupts (-1).
int wait_for_child(pid_t child, const sigset_t& signals) {
  for (;;) {
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child) return status;
    const int number = ::sigwaitinfo(&signals, nullptr);
    if (number == SIGINT || number == SIGTERM || number == SIGHUP) return -1;
  }
}

/// Ends whatever the child left running. Its orphans are ours: PR_SET_CHILD_SUBREAPER.
void end_all(pid_t group, const sigset_t& signals) {
  ::kill(-group, SIGTERM);
  const Deadline deadline = Deadline::after(kPatience);
  bool killed = false;
  for (;;) {
    const pid_t ended = ::waitpid(-1, nullptr, WNOHANG);
    if (ended < 0 && errno == ECHILD) return;
    if (ended > 0) continue;
    if (deadline.passed() && !killed) {
      killed = true;
      ::kill(-group, SIGKILL);
    }
    const timespec pause{0, 50'000'000};
    ::sigtimedwait(&signals, nullptr, &pause);
  }
}

[[noreturn]] void be_child(const fs::path& directory, int result,
                           const std::function<Status(const fs::path&)>& work,
                           const sigset_t& before) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  const Status status = work(directory);
  tell(result, status);
  std::fflush(stdout);
  ::_exit(status.ok() ? 0 : 1);
}

}  // namespace

Status in_workplace(const fs::path& where, const std::function<Status(const fs::path&)>& work) {
  remove_leftovers(where);
  const fs::path directory = where / (kPrefix + std::to_string(::getpid()));
  std::error_code failed;
  fs::create_directory(directory, failed);
  if (failed) return system_error("cannot make " + directory.string(), failed.value());
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("pipe", errno);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const sigset_t signals = watched_signals();
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &signals, &before);
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child < 0) return system_error("fork", errno);
  if (child == 0) be_child(directory, writer.get(), work, before);
  ::setpgid(child, child);
  writer.reset();
  const int ended = wait_for_child(child, signals);
  if (ended == -1) ::kill(child, SIGKILL);
  end_all(child, signals);
  const Status status = told(reader.get());
  remove_directory(directory);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (ended == -1) return Status(Errc::interrupted, "interrupted; what it made is removed");
  if (status.ok() && ended != 0)
    return Status(Errc::io, "the benchmark died of signal " + std::to_string(WTERMSIG(ended)) +
                                "; what it made is removed");
  return status;
}

}  // namespace starlane::cli::bench
