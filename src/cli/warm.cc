// warm PATH…: brings files into this host's cache before anybody waits for them.
#include <fcntl.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/command.h"
#include "cli/terminal.h"
#include "common/bytes.h"
#include "common/errno.h"
#include "common/unique_fd.h"

namespace starlane::cli {
namespace fs = std::filesystem;
namespace {

constexpr long kFuseMagic = 0x65735546;
constexpr std::size_t kPiece = 4_MiB;

struct File {
  fs::path path;
  std::uint64_t length = 0;
};

Status collect(const fs::path& path, std::vector<File>* files) {
  struct statfs where {};
  if (::statfs(path.c_str(), &where) != 0)
    return system_error("cannot read " + path.string(), errno);
  if (where.f_type != kFuseMagic)
    return Status(Errc::invalid,
                  path.string() + " is not on a Starlane mount; warm takes paths under one");
  std::error_code failed;
  if (fs::is_regular_file(path, failed)) {
    files->push_back({path, fs::file_size(path, failed)});
    return {};
  }
  for (const auto& entry : fs::recursive_directory_iterator(path, failed))
    if (entry.is_regular_file() && !entry.is_symlink())
      files->push_back({entry.path(), entry.file_size()});
  return failed ? system_error("cannot read " + path.string(), failed.value()) : Status();
}

/// The second open of a large file waits until the host's cache holds it all; whatever is still
/// served by the daemon is read once, into the page cache.
Status warm_file(const File& file, Progress* progress) {
  const UniqueFd first(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC));
  const UniqueFd second(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!first || !second) return system_error("cannot open " + file.path.string(), errno);
  std::vector<std::byte> buffer(kPiece);
  for (;;) {
    const ssize_t n = ::read(second.get(), buffer.data(), buffer.size());
    if (n < 0) return system_error("cannot read " + file.path.string(), errno);
    if (n == 0) return {};
    progress->advance(static_cast<std::uint64_t>(n));
  }
}

Status warm(bool json, const std::vector<std::string>& paths) {
  std::vector<File> files;
  for (const std::string& path : paths) SL_TRY(collect(path, &files));
  std::uint64_t bytes = 0;
  for (const File& file : files) bytes += file.length;
  const Nanoseconds started = system_clock().boot();
  {
    Progress progress("warm", bytes);
    for (const File& file : files) SL_TRY(warm_file(file, &progress));
  }
  const Nanoseconds took = system_clock().boot() - started;
  if (json)
    std::printf("%s\n", nlohmann::json{{"bytes", bytes},
                                       {"files", files.size()},
                                       {"seconds", std::chrono::duration<double>(took).count()}}
                            .dump()
                            .c_str());
  else
    std::printf("warm: %s in %s files, in %s\n", human_bytes(bytes).c_str(),
                human_count(files.size()).c_str(), human_duration(took).c_str());
  return {};
}

}  // namespace

void add_warm_command(Program& program) {
  auto paths = std::make_shared<std::vector<std::string>>();
  CLI::App* command = program.add(
      program.app(), "warm", "Brings files into this host's cache before they are needed",
      "  starlane warm /mnt/starlane/public/llama/v3\n",
      [&program, paths] { return warm(program.globals().json, *paths); });
  command->add_option("paths", *paths, "Files or directories on a Starlane mount")->required();
}

}  // namespace starlane::cli
