#include "wire/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/errno.h"
#include "common/log.h"

namespace starlane::wire {
namespace {

constexpr Nanoseconds kFirstBackOff = Milliseconds(50);
constexpr Nanoseconds kLongestBackOff = std::chrono::seconds(5);
constexpr Nanoseconds kLongEnough =
    std::chrono::seconds(20);  // a run after which back-off starts anew
constexpr Nanoseconds kStartLimit = std::chrono::seconds(60);
constexpr Milliseconds kTick{50};

std::string join(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

/// In the child, between fork and exec: only calls that are safe there.
[[noreturn]] void become(const std::vector<char*>& argv, int log, int ready, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  ::fcntl(ready, F_SETFD, 0);
  ::execv("/proc/self/exe", argv.data());
  ::_exit(127);
}

/// The line a role said, or the deadline's.
Status read_ready(int fd, Deadline deadline) {
  std::string line;
  while (!deadline.passed()) {
    pollfd waiting{fd, POLLIN, 0};
    if (::poll(&waiting, 1, static_cast<int>(kTick.count())) <= 0) continue;
    char piece[512];
    const ssize_t n = ::read(fd, piece, sizeof piece);
    if (n <= 0) return Status(Errc::unavailable, "it ended before it served; its log says why");
    line.append(piece, static_cast<std::size_t>(n));
    if (line.find('\n') == std::string::npos) continue;
    line.resize(line.find('\n'));
    return line == "ready" ? Status() : Status(Errc::unavailable, line);
  }
  return Status(Errc::timeout, "it did not serve within a minute; its log says why");
}

}  // namespace

void tell_ready(int ready_fd, const Status& status) {
  if (ready_fd < 0) return;
  const std::string line = (status.ok() ? std::string("ready") : status.text()) + "\n";
  [[maybe_unused]] const auto n = ::write(ready_fd, line.data(), line.size());
  ::close(ready_fd);
}

Status Supervisor::spawn(Child& child) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("pipe", errno);
  UniqueFd reader(ends[0]), writer(ends[1]);
  const UniqueFd log(
      ::open(site_.log(child.role).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640));
  if (!log) return system_error("cannot open " + site_.log(child.role).string(), errno);
  std::vector<std::string> words{"starlane"};
  words.insert(words.end(), child.arguments.begin(), child.arguments.end());
  words.insert(words.end(), {"--ready-fd", std::to_string(writer.get())});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return system_error("fork", errno);
  if (pid == 0) become(argv, log.get(), writer.get(), parent);
  child.pid = pid;
  child.started = system_clock().boot();
  child.ready = std::move(reader);
  SL_LOG(info, "role started role={} pid={} command=\"{}\"", child.role, pid, join(words));
  return {};
}

Status Supervisor::start(const std::string& role, std::vector<std::string> arguments) {
  Child child;
  child.role = role;
  child.arguments = std::move(arguments);
  SL_TRY(spawn(child));
  const Status ready = read_ready(child.ready.get(), Deadline::after(kStartLimit));
  child.ready.reset();
  children_.push_back(std::move(child));
  write_state();
  return ready.with("the " + role + " role cannot run");
}

void Supervisor::watch() {
  sigset_t wanted;
  ::sigemptyset(&wanted);
  ::sigaddset(&wanted, SIGTERM);
  ::sigaddset(&wanted, SIGINT);
  for (;;) {
    const timespec tick{0, std::chrono::duration_cast<Nanoseconds>(kTick).count()};
    if (::sigtimedwait(&wanted, nullptr, &tick) > 0) return;
    reap();
    restart_due();
  }
}

void Supervisor::reap() {
  for (Child& child : children_) {
    int status = 0;
    if (child.pid < 0 || ::waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
    const Nanoseconds now = system_clock().boot();
    const bool lived = now - child.started > kLongEnough;
    child.back_off = lived || child.back_off == Nanoseconds::zero()
                         ? kFirstBackOff
                         : std::min(child.back_off * 2, kLongestBackOff);
    child.restart_at = now + child.back_off;
    SL_LOG(warn, "role died role={} pid={} {}={} restart_in_ms={}", child.role, child.pid,
           WIFSIGNALED(status) ? "signal" : "exit",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
           std::chrono::duration_cast<Milliseconds>(child.back_off).count());
    child.pid = -1;
  }
}

void Supervisor::restart_due() {
  for (Child& child : children_) {
    if (child.pid >= 0 || system_clock().boot() < child.restart_at) continue;
    const Status spawned = spawn(child);
    if (!spawned.ok()) {
      SL_LOG(error, "role cannot be started role={} error=\"{}\"", child.role, spawned.to_string());
      child.restart_at = system_clock().boot() + kLongestBackOff;
    }
    write_state();
  }
}

void Supervisor::stop(Nanoseconds patience) {
  for (auto child = children_.rbegin(); child != children_.rend(); ++child) {
    if (child->pid < 0) continue;
    ::kill(child->pid, SIGTERM);
    const Deadline deadline = Deadline::after(patience);
    while (::waitpid(child->pid, nullptr, WNOHANG) == 0) {
      if (deadline.passed()) {
        SL_LOG(warn, "role does not stop, killing it role={} pid={}", child->role, child->pid);
        ::kill(child->pid, SIGKILL);
        ::waitpid(child->pid, nullptr, 0);
        break;
      }
      std::this_thread::sleep_for(Milliseconds(10));
    }
    child->pid = -1;
  }
  children_.clear();
}

std::vector<std::pair<std::string, pid_t>> Supervisor::children() const {
  std::vector<std::pair<std::string, pid_t>> out;
  for (const Child& child : children_) out.emplace_back(child.role, child.pid);
  return out;
}

void Supervisor::write_state() const {
  nlohmann::json roles = nlohmann::json::object();
  for (const Child& child : children_) roles[child.role] = child.pid;
  const std::string draft = site_.state_file("up").string() + ".new";
  std::ofstream(draft)
      << nlohmann::json{{"role", "up"}, {"pid", ::getpid()}, {"children", roles}}.dump() << "\n";
  std::error_code ignored;
  std::filesystem::rename(draft, site_.state_file("up"), ignored);
}

}  // namespace starlane::wire
