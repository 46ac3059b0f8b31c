#include "fuse/holder/holder.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "fuse/mount.h"

extern char** environ;

namespace starlane::fuse {
namespace {

constexpr int kTickMs = 250;
constexpr long long kFirstWordMs = 30'000;  // a busy machine takes its time to load a program
constexpr long long kAwayMs = 1000;      // a holder that did not come round for so long was stopped
constexpr long long kShortLifeMs = 300;  // a daemon that served that long started well
constexpr int kFreeRestarts = 3;         // in a row without a pause
constexpr int kLongestPauseMs = 5000;

long long now_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000LL + now.tv_nsec / 1'000'000;
}

sigset_t watched_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) ::sigaddset(&set, number);
  return set;
}

std::string own_program() {
  char path[PATH_MAX];
  const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path - 1);
  return n > 0 ? std::string(path, static_cast<std::size_t>(n)) : std::string("/proc/self/exe");
}

bool same_file(const char* path, int fd) {
  struct stat named {
  }, open{};
  return ::stat(path, &named) == 0 && ::fstat(fd, &open) == 0 && named.st_dev == open.st_dev &&
         named.st_ino == open.st_ino;
}

void log(const char* text) { ::dprintf(STDERR_FILENO, "%s", text); }
template <typename... Values>
void log(const char* format, Values... values) {
  ::dprintf(STDERR_FILENO, format, values...);
}

}  // namespace

Holder::Holder(Options options)
    : options_(std::move(options)),
      program_(own_program()),
      binary_(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)) {
  for (std::string& word : options_.arguments) argv_.push_back(word.data());
  argv_.push_back(nullptr);
}

int Holder::run() {
  ::prctl(PR_SET_NAME, "starlane-hold");
  ::signal(SIGPIPE, SIG_IGN);
  const sigset_t set = watched_signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  signals_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_ || !spawn()) {
    log("starlane: cannot start the mount's process: %s\n", std::strerror(errno));
    return 1;
  }
  while (exit_code_ < 0) {
    if (daemon_ < 0 && now_ms() >= restart_ms_ && !spawn())
      restart_ms_ = now_ms() + kLongestPauseMs;
    wait();
  }
  tell_ready("the mount's process ended before it served; its log says why\n");
  if (keeps_mount() && device_number_[0] != '\0')
    take_away(items_[static_cast<int>(HeldItem::device)].get(), device_number_);
  return exit_code_;
}

// ---- Starting a daemon ----

bool Holder::spawn() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return false;
  channel_.reset(ends[0]);
  UniqueFd theirs(ends[1]);
  const std::string variable = std::string(kHolderVariable) + "=" + std::to_string(theirs.get());
  std::vector<char*> environment;
  for (char** word = environ; *word != nullptr; ++word) environment.push_back(*word);
  environment.push_back(const_cast<char*>(variable.c_str()));
  environment.push_back(nullptr);
  const pid_t holder = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return false;
  if (child == 0) become_daemon(holder, theirs.get(), environment.data());
  daemon_ = child;
  started_ms_ = heard_ms_ = now_ms();
  state_ = State::starting;
  return welcome();
}

/// In the child, between fork and exec: only calls that are safe there.
void Holder::become_daemon(pid_t holder, int channel, char* const* environment) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // without its holder it ends well
  if (::getppid() != holder) ::_exit(1);
  ::setpgid(0, 0);  // what the terminal says is said to the holder
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::fcntl(channel, F_SETFD, 0);
  if (same_file(program_.c_str(), binary_.get()))
    ::execve(program_.c_str(), argv_.data(), environment);
  ::fexecve(binary_.get(), argv_.data(), environment);
  ::_exit(127);
}

/// The socket holds all of it, so a daemon that dies before it reads costs nothing.
bool Holder::welcome() {
  HolderMessage message;
  message.kind = HolderMessage::given;
  for (int i = 0; i < kHeldItems; ++i) {
    if (!items_[i]) continue;
    message.item = static_cast<std::uint16_t>(i);
    send_message(channel_.get(), message, items_[i].get(), MSG_DONTWAIT);
  }
  message.kind = HolderMessage::welcome;
  message.item = static_cast<std::uint16_t>(signal_);
  message.number = generation_++;
  std::snprintf(message.text, sizeof message.text, "%s", cause_);
  return send_message(channel_.get(), message, -1, MSG_DONTWAIT);
}

// ---- Waiting ----

void Holder::wait() {
  pollfd waiting[4] = {{signals_.get(), POLLIN, 0},
                       {daemon_ > 0 ? channel_.get() : -1, POLLIN, 0},
                       {items_[static_cast<int>(HeldItem::control)].get(), POLLIN, 0},
                       {control_client_.get(), POLLIN, 0}};
  ::poll(waiting, 4, kTickMs);
  // What the daemon had said comes before what is concluded from its silence or death.
  take_messages();
  take_signals();
  if (waiting[2].revents != 0) accept_control();
  if (waiting[3].revents != 0) take_request();
  check_life();
  reap();
}

void Holder::take_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == ssize_t{sizeof info}) {
    if (info.ssi_signo != SIGCHLD) begin_stop();
  }
}

/// Only a daemon that serves can store what was written, and unmount: between two, the next one is
/// let come first. Who asks twice wants no more of that.
void Holder::begin_stop() {
  const bool again = std::exchange(stop_asked_ms_, now_ms()) != 0;
  if (state_ == State::serving || (daemon_ > 0 && !keeps_mount())) {
    state_ = State::stopping;
    ::kill(daemon_, SIGTERM);
  } else if (again && state_ != State::stopping) {
    give_up();
  }
}

void Holder::give_up() {
  log("starlane: stopped before another process could go on with the mount: what was written and "
      "not stored is lost\n");
  if (daemon_ > 0) ::kill(daemon_, SIGKILL);
  exit_code_ = 1;
}

bool Holder::keeps_mount() const {
  return static_cast<bool>(items_[static_cast<int>(HeldItem::device)]);
}

void Holder::take_messages() {
  if (!channel_) return;
  for (int messages = 0; messages < 64; ++messages) {
    HolderMessage message;
    int fd = -1;
    const int got = receive_message(channel_.get(), &message, &fd, MSG_DONTWAIT);
    if (got == 1) take(message, fd);
    if (got == 0) channel_.reset();
    if (got != 1) return;
  }
}

void Holder::take(const HolderMessage& message, int fd) {
  UniqueFd received(fd);
  heard_ms_ = now_ms();
  switch (message.kind) {
    case HolderMessage::keep:
      if (message.item < kHeldItems) items_[message.item] = std::move(received);
      if (message.item == static_cast<int>(HeldItem::device))
        std::snprintf(device_number_, sizeof device_number_, "%.23s", message.text);
      break;
    case HolderMessage::ready:
      tell_ready("ready\n");
      ever_ready_ = true;
      if (state_ == State::starting) state_ = State::serving;
      if (stop_asked_ms_ != 0 && state_ == State::serving) begin_stop();
      if (control_client_) {
        char line[64];
        std::snprintf(line, sizeof line, "ok %d", static_cast<int>(daemon_));
        answer(line);
      }
      old_binary_.reset();
      break;
    case HolderMessage::failed: {
      char line[sizeof message.text + 1];
      std::snprintf(line, sizeof line, "%s\n", message.text);
      tell_ready(line);
      break;
    }
    default:
      break;
  }
}

// A stopped or stuck daemon is as good as a dead one, and cannot say so.
void Holder::check_life() {
  const long long now = now_ms();
  const bool new_born = heard_ms_ == started_ms_;
  // Stopped itself, or starved, it has heard nothing, and that is nobody's fault.
  if (now - std::exchange(turned_ms_, now) > kAwayMs) {
    heard_ms_ = leaving_ms_ = now;
    if (new_born) started_ms_ = now;
    if (stop_asked_ms_ != 0) stop_asked_ms_ = now;
  }
  const bool late = stop_asked_ms_ != 0 && now - stop_asked_ms_ > options_.stop_limit_ms;
  if (late && state_ != State::stopping) return give_up();
  if (daemon_ <= 0 || state_ == State::stopping) return;
  const long long limit =
      new_born ? std::max<long long>(options_.hang_limit_ms, kFirstWordMs) : options_.hang_limit_ms;
  const bool hangs = options_.hang_limit_ms > 0 && now - heard_ms_ > limit;
  const bool stays = state_ == State::leaving && now - leaving_ms_ > options_.leave_limit_ms;
  if (!hangs && !stays) return;
  if (hangs)
    log("starlane: the mount's process %d does not answer: it is killed, another one goes on\n",
        static_cast<int>(daemon_));
  ::kill(daemon_, SIGKILL);
  heard_ms_ = leaving_ms_ = now;
}

// ---- After a daemon ----

void Holder::reap() {
  int status = 0;
  if (daemon_ <= 0 || ::waitpid(daemon_, &status, WNOHANG) != daemon_) return;
  take_messages();  // the last it said
  daemon_ = -1;
  channel_.reset();
  const int code = after_death(status);
  if (exit_code_ < 0) exit_code_ = code;
}

/// The holder's exit code when it ends as well; else -1.
int Holder::after_death(int status) {
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  signal_ = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  if (state_ == State::leaving) {
    std::snprintf(cause_, sizeof cause_, "upgrade");
    return -1;
  }
  // One that was killed while it stopped has stored nothing to rely on: the next one does it.
  if (state_ == State::stopping && (signal_ == 0 || !keeps_mount())) return code;
  if (code == 0 && ever_ready_) return 0;  // unmounted, or told to stop
  if (!ever_ready_) return code;
  if (!keeps_mount()) {
    log("starlane: the mount's process ended (%d), and the mount with it\n", code);
    return code;
  }
  std::snprintf(cause_, sizeof cause_, signal_ != 0 ? "signal %d" : "exit code %d",
                signal_ != 0 ? signal_ : code);
  const bool served = state_ == State::serving && now_ms() - started_ms_ > kShortLifeMs;
  failed_starts_ = served ? 0 : failed_starts_ + 1;
  restart_ms_ = 0;
  if (const int over = failed_starts_ - kFreeRestarts; over > 0)
    restart_ms_ = now_ms() + std::min(50 << std::min(over, 10), kLongestPauseMs);
  log("starlane: the mount's process died (%s), another one goes on\n", cause_);
  if (state_ == State::starting && old_binary_) fall_back();
  return -1;
}

void Holder::fall_back() {
  program_ = old_program_;
  binary_ = std::move(old_binary_);
  failed_starts_ = 0;
  restart_ms_ = 0;
  answer("the new binary ended before it served; the old one goes on");
}

void Holder::tell_ready(const char* line) {
  if (options_.ready_fd < 0) return;
  [[maybe_unused]] const auto n = ::write(options_.ready_fd, line, std::strlen(line));
  ::close(std::exchange(options_.ready_fd, -1));
}

// ---- Another binary ----

void Holder::accept_control() {
  UniqueFd client(::accept4(items_[static_cast<int>(HeldItem::control)].get(), nullptr, nullptr,
                            SOCK_CLOEXEC | SOCK_NONBLOCK));
  ucred who{};
  socklen_t size = sizeof who;
  if (!client || ::getsockopt(client.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return;
  if (who.uid != 0 && who.uid != ::geteuid()) return;
  if (control_client_) return;  // one at a time: the other finds its socket closed
  control_client_ = std::move(client);
}

void Holder::take_request() {
  char path[PATH_MAX + 1] = {};
  const ssize_t n = ::recv(control_client_.get(), path, sizeof path - 1, MSG_DONTWAIT);
  if (n < 0 && errno == EAGAIN) return;
  if (n <= 0) return control_client_.reset();
  if (state_ != State::serving) return answer("the mount is not serving just now: try again");
  begin_upgrade(path);
}

void Holder::begin_upgrade(const char* path) {
  UniqueFd binary(::open(path, O_RDONLY | O_CLOEXEC));
  if (!binary || ::access(path, X_OK) != 0) return answer("the new binary cannot be read and run");
  old_program_ = std::exchange(program_, path);
  old_binary_ = std::exchange(binary_, std::move(binary));
  state_ = State::leaving;
  leaving_ms_ = now_ms();
  HolderMessage message;
  message.kind = HolderMessage::leave;
  send_message(channel_.get(), message, -1, MSG_DONTWAIT);
}

void Holder::answer(const char* line) {
  if (!control_client_) return;
  [[maybe_unused]] const auto n =
      ::send(control_client_.get(), line, std::strlen(line), MSG_DONTWAIT | MSG_NOSIGNAL);
  control_client_.reset();
}

}  // namespace starlane::fuse
