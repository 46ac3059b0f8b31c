// What this process may take: descriptors, locked memory, other processes' memory, memory of the
// control group.
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>

#include "doctor/host.h"

namespace starlane::doctor {
namespace {

constexpr const char* kTopic = "limits";
constexpr std::uint64_t kWantedFiles = 65'536;
constexpr std::uint64_t kWantedLocked = std::uint64_t{64} << 20;

std::string limit_text(rlim_t value, bool bytes) {
  if (value == RLIM_INFINITY) return "unlimited";
  return bytes ? size_text(value) : std::to_string(value);
}

void check_files(Checks& out) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const bool enough = limit.rlim_cur >= kWantedFiles;
  out.push_back(
      {kTopic, "open files", enough ? Verdict::ok : Verdict::warning,
       limit_text(limit.rlim_cur, false) + " (at most " + limit_text(limit.rlim_max, false) + ")",
       enough ? ""
              : "ulimit -n 65536, or LimitNOFILE=65536 in the unit, for many clients and "
                "many mapped files."});
}

void check_locked(Checks& out) {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  const bool enough = limit.rlim_cur >= kWantedLocked;
  out.push_back({kTopic, "locked memory", enough ? Verdict::ok : Verdict::warning,
                 limit_text(limit.rlim_cur, true),
                 enough ? ""
                        : "ulimit -l unlimited (LimitMEMLOCK=infinity): RDMA and io_uring on old "
                          "kernels need it."});
}

void check_yama(const Host& host, Checks& out) {
  const auto scope = host.number("proc/sys/kernel/yama/ptrace_scope");
  Check check{kTopic, "ptrace scope", Verdict::ok,
              scope ? std::to_string(*scope) : "no Yama: unrestricted", ""};
  if (scope && *scope >= 2) {
    check.verdict = Verdict::warning;
    check.remedy =
        "sysctl kernel.yama.ptrace_scope=1: else `debug bundle` has no stacks, and --ucx copies "
        "between processes more slowly.";
  }
  out.push_back(check);
}

void check_io_uring(const Host& host, Checks& out) {
  Check check{kTopic, "io_uring", Verdict::ok,
              "works: block targets read and write several at once", ""};
  const auto disabled = host.number("proc/sys/kernel/io_uring_disabled");
  bool forbidden = disabled && *disabled != 0;
  if (host.is_this_machine()) {
    alignas(8) char parameters[120] = {};
    const long ring = ::syscall(SYS_io_uring_setup, 1, parameters);
    forbidden = ring < 0;
    check.found = ring < 0 ? std::strerror(errno) : check.found;
    if (ring >= 0) ::close(static_cast<int>(ring));
  }
  if (forbidden) {
    check.verdict = Verdict::warning;
    if (disabled && *disabled != 0)
      check.found = "kernel.io_uring_disabled=" + std::to_string(*disabled);
    check.remedy =
        "Allow io_uring (sysctl kernel.io_uring_disabled=0, or the container's seccomp "
        "profile); until then block targets use plain calls.";
  }
  out.push_back(check);
}

void check_seccomp(const Host& host, Checks& out) {
  const auto mode = host.field("proc/self/status", "Seccomp");
  const bool filtered = mode && *mode != 0;
  out.push_back(
      {kTopic, "seccomp", Verdict::ok,
       filtered ? "a filter is on; what it forbids shows in the other lines" : "no filter", ""});
}

/// The smallest limit on the way up from the process's group.
std::optional<std::uint64_t> group_limit(const Host& host) {
  std::string path;
  std::istringstream lines(host.text("proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("0::")) path = line.substr(3);
  std::optional<std::uint64_t> least;
  for (;;) {
    const auto limit = host.number("sys/fs/cgroup" + path + "/memory.max");
    if (limit && (!least || *limit < *least)) least = limit;
    if (path.empty()) break;
    path = path.substr(0, path.rfind('/'));
  }
  if (!least) least = host.number("sys/fs/cgroup/memory/memory.limit_in_bytes");
  return least;
}

void check_group(const Host& host, Checks& out) {
  const auto limit = group_limit(host);
  const auto memory = host.field("proc/meminfo", "MemTotal");
  Check check{kTopic, "control group memory", Verdict::ok, "no limit", ""};
  if (limit && memory && *limit < *memory) {
    check.found = size_text(*limit) + " of " + size_text(*memory);
    if (*limit < (std::uint64_t{2} << 30)) {
      check.verdict = Verdict::warning;
      check.remedy =
          "Raise the limit to 2 GiB, or lower --block-cache, --dirty and --node-cache: together "
          "they must stay below it.";
    }
  }
  out.push_back(check);
}

}  // namespace

void check_limits(const Host& host, Checks& out) {
  if (host.is_this_machine()) {
    check_files(out);
    check_locked(out);
  }
  check_io_uring(host, out);
  check_yama(host, out);
  check_seccomp(host, out);
  check_group(host, out);
}

}  // namespace starlane::doctor
