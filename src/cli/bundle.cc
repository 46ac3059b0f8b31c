// debug bundle: what a bug report needs, in one archive, and nothing of users' data.
#include <fcntl.h>
#include <spawn.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "cli/command.h"
#include "cli/doctor_report.h"
#include "cli/role_states.h"
#include "cli/terminal.h"
#include "common/errno.h"
#include "wire/console.h"
#include "wire/json_value.h"

namespace starlane::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uintmax_t kLogBytes = 4 << 20;  // of the end of each log
constexpr Nanoseconds kStackPatience = std::chrono::seconds(30);

constexpr const char* kReadMe =
    "A bug report of Starlane.\n\n"
    "doctor.txt, doctor.json   what the machine offers\n"
    "status.json               targets, sessions, totals\n"
    "state/                    what each role said of itself last\n"
    "metrics/                  counters and latencies of each process\n"
    "log/                      the ends of the logs\n"
    "starlane.toml             the settings, where there is such a file\n"
    "processes/                limits, memory and, where gdb could attach, stacks of the threads\n"
    "versions.txt              of Starlane, kernel and system\n\n"
    "Not in it: contents of files, metadata, the site's key, access logs, values of variables. "
    "Logs, "
    "status and settings name hosts, directories of the site, mountpoints and volumes.\n";

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &parts);
  return text;
}

/// The directory in which it is put together; gone with this.
class Bundle {
 public:
  static Result<Bundle> make() {
    char name[] = "/tmp/starlane-bundle-XXXXXX";
    if (::mkdtemp(name) == nullptr) return system_error("cannot make a directory in /tmp", errno);
    return Bundle(name, "starlane-bundle-" + now_text());
  }
  Bundle(Bundle&& other) noexcept
      : above_(std::exchange(other.above_, {})), name_(std::move(other.name_)) {}
  ~Bundle() {
    std::error_code ignored;
    if (!above_.empty()) fs::remove_all(above_, ignored);
  }

  /// Made with the directories on the way; readable by this user only.
  fs::path place(const std::string& file) const {
    std::error_code ignored;
    const fs::path where = above_ / name_ / file;
    fs::create_directories(where.parent_path(), ignored);
    return where;
  }
  void write(const std::string& file, const std::string& text) const {
    std::ofstream(place(file), std::ios::binary) << text;
  }
  void copy_end(const fs::path& from, const std::string& file) const {
    std::ifstream in(from, std::ios::binary | std::ios::ate);
    if (!in) return;
    const auto size = static_cast<std::uintmax_t>(in.tellg());
    const std::uintmax_t start = size > kLogBytes ? size - kLogBytes : 0;
    std::string text(size - start, '\0');
    in.seekg(static_cast<std::streamoff>(start));
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    write(file, text);
  }
  const fs::path& above() const { return above_; }
  const std::string& name() const { return name_; }

 private:
  Bundle(fs::path above, std::string name) : above_(std::move(above)), name_(std::move(name)) {}
  fs::path above_;
  std::string name_;
};

/// Runs a program with its output in a file; killed when it takes longer. False: it is not there,
/// or failed.
bool run(std::vector<std::string> words, const fs::path& output, Nanoseconds patience) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t child = -1;
  const int failed = ::posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return false;
  const Deadline until = Deadline::after(patience);
  int result = 0;
  while (::waitpid(child, &result, WNOHANG) == 0) {
    if (until.passed()) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &result, 0);
      return false;
    }
    std::this_thread::sleep_for(Milliseconds(10));
  }
  return WIFEXITED(result) && WEXITSTATUS(result) == 0;
}

std::string file_text(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string versions() {
  utsname name{};
  ::uname(&name);
  return std::string("starlane ") + wire::kVersion + "\nkernel " + name.release + " " +
         name.version + " " + name.machine + "\n\n" + file_text("/etc/os-release");
}

void add_site(const Program& program, const wire::Site& site, const Bundle& bundle) {
  const auto connection = program.connect();
  const Result<json> status =
      connection.ok() ? site_status(**connection) : Result<json>(connection.status());
  bundle.write("status.json",
               (status.ok() ? *status : json{{"problem", status.status().text()}}).dump(2) + "\n");
  bundle.copy_end(site.directory() / "starlane.toml", "starlane.toml");
  std::error_code ignored;
  for (const auto& file : fs::directory_iterator(site.directory() / "log", ignored))
    bundle.copy_end(file.path(), "log/" + file.path().filename().string());
  for (const auto& file : fs::directory_iterator(site.directory() / "run", ignored))
    if (file.path().extension() == ".json")
      bundle.copy_end(file.path(), "state/" + file.path().filename().string());
  for (const wire::Shown& shown : wire::consoles_of(site)) {
    const auto page = wire::ask_console(shown.place, "/metrics");
    bundle.write("metrics/" + shown.name + ".txt", page.ok() ? *page : page.status().text() + "\n");
  }
}

std::set<int> processes_of(const wire::Site& site) {
  std::set<int> found;
  const json roles = role_states(site);
  for (const auto& [role, state] : roles.items()) found.insert(state.value("pid", 0));
  const json up = json::parse(file_text(site.directory() / "run" / "up.json"), nullptr, false);
  if (const json children = up.is_object() ? up.value("children", json::object()) : json();
      children.is_object())
    for (const auto& [role, pid] : children.items())
      found.insert(wire::value_in(children, role.c_str(), 0));
  int up_pid = 0;
  std::ifstream(site.directory() / "run" / "up.lock") >> up_pid;
  found.insert(up_pid);
  // A number that a dead process left may be another's by now.
  std::error_code ignored;
  const fs::path own = fs::read_symlink("/proc/self/exe", ignored).filename();
  std::erase_if(found, [&](int pid) {
    const fs::path program = fs::read_symlink("/proc/" + std::to_string(pid) + "/exe", ignored);
    // A program that was replaced while it ran has " (deleted)" behind its name.
    return pid <= 1 || !program.filename().string().starts_with(own.string());
  });
  return found;
}

/// A process stands still while gdb reads its stacks.
void add_process(int pid, bool stacks, const Bundle& bundle) {
  const std::string number = std::to_string(pid), at = "processes/" + number + "/";
  for (const char* file : {"status", "limits", "smaps_rollup", "cgroup"})
    bundle.write(at + file, file_text("/proc/" + number + "/" + file));
  std::string waits;
  std::error_code ignored;
  for (const auto& task : fs::directory_iterator("/proc/" + number + "/task", ignored)) {
    std::string name = file_text(task.path() / "comm");
    if (!name.empty()) name.pop_back();
    waits += task.path().filename().string() + " " + name + " " + file_text(task.path() / "wchan") +
             "\n";
  }
  bundle.write(at + "threads", waits);
  if (!stacks) return;
  const bool done = run({"gdb", "-nx", "-batch", "-p", number, "-ex",
                         "set print frame-arguments none", "-ex", "thread apply all backtrace 64"},
                        bundle.place(at + "stacks"), kStackPatience);
  if (!done)
    bundle.write(at + "stacks",
                 "gdb is not installed, or may not attach (see doctor.txt, ptrace scope)\n" +
                     file_text(bundle.place(at + "stacks")));
}

struct Wanted {
  std::string file;
  bool no_stacks = false;
};

Status save(const Bundle& bundle, const std::string& file) {
  const UniqueFd made(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!made && errno == EEXIST)
    return Status(Errc::exists, file + " is there already; name another file");
  if (!made) return system_error("cannot write " + file, errno);
  const fs::path said = bundle.above() / "tar";
  if (run({"tar", "-czf", file, "-C", bundle.above().string(), bundle.name()}, said,
          std::chrono::minutes(5)))
    return {};
  ::unlink(file.c_str());
  return Status(Errc::io, "tar could not write " + file + ": " + file_text(said));
}

void print(const Program& program, const Bundle& bundle, const std::string& file) {
  std::vector<std::string> names;
  const fs::path root = bundle.above() / bundle.name();
  for (const auto& entry : fs::recursive_directory_iterator(root))
    if (entry.is_regular_file()) names.push_back(fs::relative(entry.path(), root).string());
  std::ranges::sort(names);
  if (program.globals().json) {
    std::printf("%s\n", json{{"file", file}, {"contents", names}}.dump().c_str());
    return;
  }
  std::printf("%s  %s\n", styled(file, Style::bold).c_str(),
              human_bytes(fs::file_size(file)).c_str());
  for (const std::string& name : names) std::printf("  %s\n", name.c_str());
  std::printf(
      "No contents of files, no key, no access log. Logs, status and settings name hosts, "
      "directories and volumes: look before you send it.\n");
}

Status make(const Program& program, const Wanted& wanted) {
  const std::string file =
      wanted.file.empty() ? "starlane-bundle-" + now_text() + ".tar.gz" : wanted.file;
  const Bundle bundle = SL_TRY(Bundle::make());
  bundle.write("README.txt", kReadMe);
  bundle.write("versions.txt", versions());
  const auto checks = examine_site(program, {}, true);
  bundle.write("doctor.txt", checks_text(checks));
  bundle.write("doctor.json", checks_json(checks).dump(2) + "\n");
  if (!program.globals().directory.empty()) {
    const wire::Site site = SL_TRY(program.site());
    add_site(program, site, bundle);
    for (const int pid : processes_of(site)) add_process(pid, !wanted.no_stacks, bundle);
  }
  SL_TRY(save(bundle, file));
  print(program, bundle, file);
  return {};
}

}  // namespace

void add_debug_command(Program& program) {
  CLI::App* command = program.add(program.app(), "debug", "For bug reports", "", {});
  command->require_subcommand(1);
  const auto wanted = std::make_shared<Wanted>();
  CLI::App* bundle =
      program.add(*command, "bundle", "Puts what a bug report needs into one archive",
                  "  starlane --dir /srv/starlane debug bundle report.tar.gz\n"
                  "Each process stands still for a moment while gdb, where it is installed, reads "
                  "its stacks. No user "
                  "data: the archive's README.txt says what is in it.\n",
                  [&program, wanted] { return make(program, *wanted); });
  bundle->add_option("file", wanted->file, "A new file; default starlane-bundle-TIME.tar.gz here");
  bundle->add_flag("--no-stacks", wanted->no_stacks, "Leave the stacks out; nothing stands still");
}

}  // namespace starlane::cli
