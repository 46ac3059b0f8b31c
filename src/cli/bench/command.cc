// bench: measures this machine and Starlane on it, side by side.
#include <fnmatch.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>

#include "cli/bench/bench.h"
#include "cli/bench/workplace.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "common/bytes.h"
#include "wire/ceiling.h"
#include "wire/supervisor.h"

namespace starlane::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLargest = 4_GiB;
constexpr std::uint64_t kSmallest = 64_MiB;
constexpr std::uint64_t kQuick = 512_MiB;
/// Stored, for comparison, and in caches: what a run holds at once, in sizes.
constexpr std::uint64_t kShare = 4;

struct Arguments {
  std::string where = "/dev/shm";
  std::uint64_t size_bytes = 0;
  std::size_t runs = 3;
  bool quick = false;
  bool list = false;
  std::vector<std::string> only;
  // Of the hidden server.
  std::string ceiling_mount;
  std::vector<std::string> shown;
  int ready_fd = -1;
};

/// Serves what is measured against, until SIGTERM.
Status serve_ceiling(const Arguments& arguments) {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  std::vector<wire::CeilingFile> files;
  for (const std::string& word : arguments.shown) {
    const bench::Shown shown = SL_TRY(bench::shown_of(word));
    files.push_back({shown.name, shown.file.string(), shown.offset, shown.length});
  }
  const auto ceiling = SL_TRY(wire::Ceiling::start(arguments.ceiling_mount, files));
  wire::tell_ready(arguments.ready_fd, {});
  int number = 0;
  ::sigwait(&set, &number);
  return ceiling->stop();
}

/// Memory that can be had without swapping; tmpfs takes it, too.
std::uint64_t available_memory() {
  std::ifstream in("/proc/meminfo");
  std::string word;
  while (in >> word)
    if (word == "MemAvailable:") {
      std::uint64_t kib = 0;
      in >> kib;
      return kib * 1_KiB;
    }
  return 0;
}

Result<std::uint64_t> room_at(const std::string& where) {
  struct statvfs about {};
  if (::statvfs(where.c_str(), &about) != 0)
    return Status(Errc::not_found, "there is no directory " + where + "; give --where DIR");
  return std::min(std::uint64_t{about.f_bavail} * about.f_frsize, available_memory());
}

Result<std::uint64_t> choose_size(const Arguments& arguments) {
  const std::uint64_t room = SL_TRY(room_at(arguments.where));
  if (arguments.size_bytes != 0) {
    if (arguments.size_bytes * kShare <= room) return arguments.size_bytes;
    return Status(Errc::no_space, "files of " + human_bytes(arguments.size_bytes) + " need " +
                                      human_bytes(arguments.size_bytes * kShare) + " in " +
                                      arguments.where + " and in memory, " + human_bytes(room) +
                                      " are free; give a smaller --size, or another --where");
  }
  std::uint64_t size = arguments.quick ? kQuick : kLargest;
  while (size > kSmallest && size * kShare > room) size /= 2;
  if (size * kShare > room)
    return Status(Errc::no_space, "there is too little room in " + arguments.where + ": " +
                                      human_bytes(room) + " are free, " +
                                      human_bytes(size * kShare) +
                                      " are needed; give another directory by --where");
  return size;
}

Result<std::vector<bench::Line>> chosen(const Arguments& arguments) {
  std::vector<bench::Line> lines;
  const auto wanted = [&](const bench::Line& line) {
    return arguments.only.empty() ||
           std::ranges::any_of(arguments.only, [&](const std::string& pattern) {
             return ::fnmatch(pattern.c_str(), line.name, 0) == 0;
           });
  };
  for (const bench::Line& line : bench::all_lines())
    if (wanted(line)) lines.push_back(line);
  if (lines.empty())
    return Status(Errc::not_found, "no line is named " + arguments.only.front() +
                                       "; `starlane bench --list` shows the names");
  return lines;
}

Status measure(const fs::path& directory, const bench::Settings& settings,
               const std::vector<bench::Line>& lines, bool as_json) {
  const bench::Machine machine = bench::this_machine(directory.parent_path());
  bench::Bench bench(directory, settings);
  const bool on_screen = ::isatty(STDERR_FILENO) != 0;
  if (!as_json) {
    std::printf("%s", bench::render(machine, settings).c_str());
    std::fflush(stdout);
    bench.on_row([on_screen](const bench::Row& row) {
      if (on_screen) std::fprintf(stderr, "\r\033[K");
      std::printf("%s", bench::render(row).c_str());
      std::fflush(stdout);
    });
  }
  Status failed;
  for (const bench::Line& line : lines) {
    failed = line.run(bench, line.name).with(line.name);
    if (!failed.ok()) break;
  }
  if (on_screen) std::fprintf(stderr, "\r\033[K");
  if (as_json) std::printf("%s\n", bench::to_json(machine, settings, bench.rows()).dump().c_str());
  SL_TRY(bench.site.stop());
  return failed;
}

void print_list() {
  Table table({"LINE", "WHAT"});
  for (const bench::Line& line : bench::all_lines()) table.add({line.name, line.text});
  std::printf("%s", table.render().c_str());
}

Status run(const Program& program, const Arguments& arguments) {
  if (!arguments.ceiling_mount.empty()) {
    const Status served = serve_ceiling(arguments);
    if (!served.ok()) wire::tell_ready(arguments.ready_fd, served);
    return served;
  }
  if (arguments.list) {
    print_list();
    return {};
  }
  bench::Settings settings;
  settings.size_bytes = SL_TRY(choose_size(arguments));
  settings.runs = arguments.quick ? 1 : arguments.runs;
  const std::vector<bench::Line> lines = SL_TRY(chosen(arguments));
  const bool as_json = program.globals().json;
  return bench::in_workplace(arguments.where, [&](const fs::path& directory) {
    return measure(directory, settings, lines, as_json);
  });
}

}  // namespace

void add_bench_command(Program& program) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = program.add(
      program.app(), "bench",
      "Measures Starlane on this machine beside the machine's own limits; leaves nothing behind",
      "  starlane bench                      everything: ten to twenty minutes\n"
      "  starlane bench --quick              small files, one round: a minute or two\n"
      "  starlane bench --only 'map*'        some lines; --list names them\n"
      "It starts a site of its own; one that runs is not touched. docs/performance.md explains the "
      "lines.\n",
      [&program, arguments] { return run(program, *arguments); });
  command
      ->add_option("--size", arguments->size_bytes,
                   "Length of the large files (default 4GiB, less where memory is short)")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(kSmallest, std::uint64_t{1} << 40));
  command->add_option("--runs", arguments->runs, "Rounds; medians are shown")
      ->check(CLI::Range(1, 99))
      ->capture_default_str();
  command->add_flag("--quick", arguments->quick, "Small files, one round");
  command->add_option("--only", arguments->only, "Only these lines; * and ? match as in a shell");
  command->add_flag("--list", arguments->list, "Name the lines");
  command->add_option("--where", arguments->where, "Where it works: a directory in memory")
      ->capture_default_str();
  command->add_option("--serve-ceiling", arguments->ceiling_mount)->group("");
  command->add_option("--shown", arguments->shown)->group("");
  command->add_option("--ready-fd", arguments->ready_fd)->group("");
}

}  // namespace starlane::cli
