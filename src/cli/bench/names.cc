#include "cli/bench/names.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <memory>

#include "cli/bench/bytes.h"
#include "common/errno.h"
#include "common/unique_fd.h"

namespace starlane::cli::bench {
namespace fs = std::filesystem;
namespace {

fs::path directory_of(const NamesPlan& plan, std::size_t number) {
  return plan.directory / ("d" + std::to_string(number));
}

/// Directory of a file: threads share the one, or keep to those whose number is theirs.
std::string path_of(const NamesPlan& plan, std::size_t file) {
  return directory_of(plan, file % plan.directories) / ("f" + std::to_string(file));
}

Result<double> rate(std::size_t names, const std::function<Status()>& work) {
  return per_second(static_cast<double>(names), timed(work));
}

/// `work` for each file: thread t takes those with t as remainder, so that with as many directories
/// as threads, or a multiple, no two threads meet in one.
Result<double> for_each_file(const NamesPlan& plan,
                             const std::function<Status(const std::string&)>& work) {
  return rate(plan.files, [&] {
    return in_threads(plan.threads, [&](std::size_t t) -> Status {
      for (std::size_t file = t; file < plan.files; file += plan.threads)
        SL_TRY(work(path_of(plan, file)));
      return {};
    });
  });
}

Result<std::size_t> count_names(const fs::path& directory) {
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(directory.c_str()), ::closedir);
  if (!dir) return system_error("cannot list " + directory.string(), errno);
  std::size_t names = 0;
  errno = 0;
  while (const dirent* entry = ::readdir(dir.get())) names += entry->d_name[0] == 'f';
  if (errno != 0) return system_error("cannot list " + directory.string(), errno);
  return names;
}

}  // namespace

Status make_directories(const NamesPlan& plan) {
  for (std::size_t i = 0; i < plan.directories; ++i)
    if (::mkdir(directory_of(plan, i).c_str(), 0755) != 0)
      return system_error("cannot make " + directory_of(plan, i).string(), errno);
  return {};
}

Status remove_directories(const NamesPlan& plan) {
  for (std::size_t i = 0; i < plan.directories; ++i)
    if (::rmdir(directory_of(plan, i).c_str()) != 0)
      return system_error("cannot remove " + directory_of(plan, i).string(), errno);
  return {};
}

Result<double> create_files(const NamesPlan& plan) {
  return for_each_file(plan, [](const std::string& path) -> Status {
    const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    return fd ? Status() : system_error("cannot make " + path, errno);
  });
}

Result<double> stat_files(const NamesPlan& plan) {
  return for_each_file(plan, [](const std::string& path) -> Status {
    struct stat about {};
    return ::stat(path.c_str(), &about) == 0 ? Status() : system_error("stat " + path, errno);
  });
}

Result<double> list_files(const NamesPlan& plan) {
  const bool shared = plan.directories == 1;
  const std::size_t names = plan.files * (shared ? plan.threads : 1);
  std::atomic<std::size_t> found{0};  // a sum; read after the threads are joined
  const Result<double> result = rate(names, [&] {
    return in_threads(plan.threads, [&](std::size_t t) -> Status {
      for (std::size_t d = shared ? 0 : t; d < plan.directories; d += shared ? 1 : plan.threads)
        found += SL_TRY(count_names(directory_of(plan, d)));
      return {};
    });
  });
  if (result.ok() && found != names)
    return Status(Errc::corrupt,
                  "listing found " + std::to_string(found) + " of " + std::to_string(names) +
                      " names: this is a fault of the file system, please report it");
  return result;
}

Result<double> unlink_files(const NamesPlan& plan) {
  return for_each_file(plan, [](const std::string& path) -> Status {
    return ::unlink(path.c_str()) == 0 ? Status() : system_error("cannot remove " + path, errno);
  });
}

}  // namespace starlane::cli::bench
