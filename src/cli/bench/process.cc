#include "cli/bench/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "common/errno.h"
#include "common/unique_fd.h"

namespace starlane::cli::bench {
namespace fs = std::filesystem;
namespace {

constexpr Nanoseconds kStartLimit = std::chrono::seconds(90);
constexpr Nanoseconds kStopLimit = std::chrono::seconds(30);

struct Pipe {
  UniqueFd reader, writer;
  static Result<Pipe> make() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("pipe", errno);
    return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
  }
};

/// What a child is to become: prepared before the fork, since afterwards only calls are allowed
/// that are safe there.
struct Image {
  const char* program = nullptr;  // a path, or a name in PATH
  std::vector<char*> argv;
  int out = -1, err = -1, keep = -1;

  Image(const char* what, Words& words) : program(what) {
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
  }
};

Result<pid_t> launch(const Image& image) {
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return system_error("fork", errno);
  if (pid > 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);
  ::dup2(image.out, STDOUT_FILENO);
  ::dup2(image.err, STDERR_FILENO);
  if (image.keep >= 0) ::fcntl(image.keep, F_SETFD, 0);
  ::execvp(image.program, image.argv.data());
  ::_exit(127);
}

int wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

std::string read_to_end(int fd) {
  std::string out;
  char piece[4096];
  for (ssize_t n = 0; (n = ::read(fd, piece, sizeof piece)) > 0;)
    out.append(piece, static_cast<std::size_t>(n));
  return out;
}

/// The last line that says something.
std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const std::size_t at = text.rfind('\n');
  return at == std::string::npos ? text : text.substr(at + 1);
}

/// The line that a service says once it serves or knows that it cannot.
Status wait_ready(int fd) {
  const Deadline deadline = Deadline::after(kStartLimit);
  std::string line;
  while (line.find('\n') == std::string::npos) {
    if (deadline.passed()) return Status(Errc::timeout, "it did not serve in time");
    pollfd waiting{fd, POLLIN, 0};
    if (::poll(&waiting, 1, 100) <= 0) continue;
    char piece[512];
    const ssize_t n = ::read(fd, piece, sizeof piece);
    if (n <= 0) return Status(Errc::unavailable, "it ended before it served");
    line.append(piece, static_cast<std::size_t>(n));
  }
  line.resize(line.find('\n'));
  return line == "ready" ? Status() : Status(Errc::unavailable, line);
}

}  // namespace

Result<Service> Service::start(Words words, const fs::path& log) {
  Pipe ready = SL_TRY(Pipe::make());
  const UniqueFd out(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640));
  if (!out) return system_error("cannot open " + log.string(), errno);
  words.insert(words.begin(), "starlane");
  words.insert(words.end(), {"--ready-fd", std::to_string(ready.writer.get())});
  Image image("/proc/self/exe", words);
  image.out = image.err = out.get();
  image.keep = ready.writer.get();
  Service service(SL_TRY(launch(image)));
  ready.writer.reset();
  SL_TRY(wait_ready(ready.reader.get()));
  return service;
}

Service::Service(Service&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}

Service& Service::operator=(Service&& other) noexcept {
  std::swap(pid_, other.pid_);
  return *this;
}

Service::~Service() { [[maybe_unused]] const Status ignored = stop(); }

Status Service::stop() {
  if (pid_ <= 0) return {};
  const pid_t pid = std::exchange(pid_, -1);
  ::kill(pid, SIGTERM);
  const Deadline deadline = Deadline::after(kStopLimit);
  while (::waitpid(pid, nullptr, WNOHANG) == 0) {
    if (deadline.passed()) {
      ::kill(pid, SIGKILL);
      wait_for(pid);
      return Status(Errc::timeout, "process " + std::to_string(pid) + " did not stop when asked");
    }
    std::this_thread::sleep_for(Milliseconds(2));
  }
  return {};
}

Result<std::string> starlane(Words words) {
  Pipe out = SL_TRY(Pipe::make());
  Pipe err = SL_TRY(Pipe::make());
  words.insert(words.begin(), "starlane");
  Image image("/proc/self/exe", words);
  image.out = out.writer.get();
  image.err = err.writer.get();
  const pid_t pid = SL_TRY(launch(image));
  out.writer.reset();
  err.writer.reset();
  std::string answer = read_to_end(out.reader.get());
  const std::string complaint = read_to_end(err.reader.get());
  if (wait_for(pid) == 0) return answer;
  return Status(Errc::io, last_line(complaint));
}

Status run_tool(const Words& words) {
  Pipe err = SL_TRY(Pipe::make());
  Words copy = words;
  Image image(words.front().c_str(), copy);
  image.out = image.err = err.writer.get();
  const pid_t pid = SL_TRY(launch(image));
  err.writer.reset();
  const std::string complaint = read_to_end(err.reader.get());
  if (wait_for(pid) == 0) return {};
  return Status(Errc::io, words.front() + " failed: " + last_line(complaint));
}

namespace {

/// Those that live; the kernel lists them by the thread that started each.
std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> children;
  std::error_code gone;
  const std::filesystem::path threads = "/proc/" + std::to_string(pid) + "/task";
  for (std::filesystem::directory_iterator at(threads, gone), end; !gone && at != end;
       at.increment(gone)) {
    std::ifstream in(at->path() / "children");
    for (pid_t child = 0; in >> child;) children.push_back(child);
  }
  return children;
}

}  // namespace

double cpu_seconds_of(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(in, line) || line.rfind(')') == std::string::npos) return 0;
  std::istringstream rest(line.substr(line.rfind(')') + 2));
  std::vector<std::string> fields;
  for (std::string field; rest >> field;) fields.push_back(field);
  constexpr std::size_t kUserTime = 11, kFields = 4;  // utime, stime, and of the dead
  if (fields.size() < kUserTime + kFields) return 0;
  double ticks = 0;
  for (std::size_t i = 0; i < kFields; ++i) ticks += std::stod(fields[kUserTime + i]);
  double seconds = ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
  for (const pid_t child : children_of(pid)) seconds += cpu_seconds_of(child);
  return seconds;
}

}  // namespace starlane::cli::bench
