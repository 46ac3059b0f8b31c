#include "wire/site.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/errno.h"
#include "common/rng.h"
#include "net/key.h"
#include "wire/json_value.h"

namespace starlane::wire {
namespace fs = std::filesystem;
namespace {

constexpr int kFormat = 1;
constexpr std::size_t kSocketPathLimit = 100;  // sun_path holds 108

std::string new_uuid() {
  Rng rng(random_seed());
  const std::uint64_t a = rng.next(), b = rng.next();
  char text[40];
  std::snprintf(text, sizeof text, "%08x-%04x-4%03x-%04x-%012llx", static_cast<unsigned>(a >> 32),
                static_cast<unsigned>(a >> 16 & 0xffff), static_cast<unsigned>(a & 0xfff),
                static_cast<unsigned>(0x8000 | (b >> 50)),
                static_cast<unsigned long long>(b & 0xffffffffffffULL));
  return text;
}

/// Makes the names in a directory survive power loss.
Status sync_directory(const fs::path& directory) {
  const UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0)
    return system_error("cannot sync the directory " + directory.string(), errno);
  return {};
}

/// All or nothing, and durable: what follows is lost without it, however well it was synced.
Status write_identity(const fs::path& file, const std::string& cluster) {
  const fs::path draft = file.string() + ".new";
  const std::string text =
      nlohmann::json{{"what", "starlane site"}, {"format", kFormat}, {"cluster", cluster}}.dump(2) +
      "\n";
  const UniqueFd fd(::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd || ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::fsync(fd.get()) != 0)
    return system_error("cannot write " + draft.string(), errno);
  if (::rename(draft.c_str(), file.c_str()) != 0)
    return system_error("rename " + draft.string(), errno);
  return sync_directory(file.parent_path());
}

/// It becomes part of the names of sockets.
bool is_cluster(const std::string& name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
  };
  return !name.empty() && name.size() <= 64 && std::ranges::all_of(name, allowed);
}

Result<std::string> read_identity(const fs::path& file) {
  const Status damaged(
      Errc::corrupt,
      file.string() + " is damaged; restore it from a backup, or start in another --dir");
  std::ifstream in(file);
  const auto json = nlohmann::json::parse(in, nullptr, false);
  if (value_in<std::string>(json, "what", "") != "starlane site") return damaged;
  const int format = value_in(json, "format", 0);
  if (format == 0) return damaged;
  if (format != kFormat)
    return Status(Errc::unsupported, file.parent_path().string() + " has format " +
                                         std::to_string(format) + ", this starlane reads format " +
                                         std::to_string(kFormat) +
                                         "; run the version that made it");
  const auto cluster = value_in<std::string>(json, "cluster", "");
  return is_cluster(cluster) ? Result<std::string>(cluster) : damaged;
}

Status make_directories(const fs::path& directory) {
  for (const char* name : {"log", "run"}) {
    std::error_code failed;
    fs::create_directories(directory / name, failed);
    if (failed) return system_error("cannot make " + (directory / name).string(), failed.value());
  }
  return {};
}

}  // namespace

Result<Site> Site::open(const fs::path& directory) {
  Site site;
  std::error_code failed;
  site.directory_ = fs::absolute(directory, failed).lexically_normal();
  const fs::path identity = site.directory_ / "site.json";
  if (!fs::exists(identity, failed))
    return Status(
        Errc::not_found,
        site.directory_.string() + " is not a Starlane directory; `starlane up --dir` makes one");
  site.cluster_ = SL_TRY(read_identity(identity));
  return site;
}

Result<Site> Site::open_or_create(const fs::path& directory) {
  std::error_code failed;
  const fs::path absolute = fs::absolute(directory, failed).lexically_normal();
  if (!fs::exists(absolute / "site.json", failed)) {
    fs::create_directories(absolute, failed);
    if (failed) return system_error("cannot make " + absolute.string(), failed.value());
    if (!fs::is_empty(absolute, failed) && !fs::exists(absolute / "site.json.new", failed))
      return Status(
          Errc::exists,
          absolute.string() + " is not empty and not a Starlane directory; give an empty one");
    fs::permissions(absolute, fs::perms::owner_all, failed);
    SL_TRY(make_directories(absolute));
    if (!fs::exists(absolute / "key", failed))
      SL_TRY(net::make_key_file((absolute / "key").string()));
    SL_TRY(write_identity(absolute / "site.json", new_uuid()));
    SL_TRY(sync_directory(absolute.parent_path()));
  }
  SL_TRY(make_directories(absolute));
  return open(absolute);
}

std::vector<std::pair<std::string, std::string>> Site::consoles() const {
  const std::string end = ".sock";
  std::vector<std::pair<std::string, std::string>> found;
  const auto look = [&](const fs::path& where, const std::string& start) {
    std::error_code failed;
    for (fs::directory_iterator at(where, failed), last; !failed && at != last;
         at.increment(failed)) {
      const std::string name = at->path().filename().string();
      if (!name.starts_with(start) || !name.ends_with(end)) continue;
      found.emplace_back(name.substr(start.size(), name.size() - start.size() - end.size()),
                         "unix:" + at->path().string());
    }
  };
  look(directory_ / "run", kConsole);
  look("/tmp", short_name() + kConsole);
  std::ranges::sort(found);
  return found;
}

std::string Site::short_name() const { return "starlane-" + cluster_.substr(0, 13) + "-"; }

std::string Site::endpoint(const std::string& role) const {
  const std::string path = (directory_ / "run" / (role + ".sock")).string();
  if (path.size() <= kSocketPathLimit) return "unix:" + path;
  return "unix:/tmp/" + short_name() + role + ".sock";
}

Result<UniqueFd> Site::lock(const std::string& role) const {
  const fs::path file = directory_ / "run" / (role + ".lock");
  UniqueFd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) return system_error("cannot open " + file.string(), errno);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    char pid[32] = {};
    [[maybe_unused]] const auto n = ::pread(fd.get(), pid, sizeof pid - 1, 0);
    return Status(Errc::busy, directory_.string() + " is in use: its " + role +
                                  " runs as process " + pid + "; `starlane --dir " +
                                  directory_.string() + " down` stops it");
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(fd.get(), 0) != 0 || ::pwrite(fd.get(), pid.data(), pid.size(), 0) < 0)
    return system_error("cannot write " + file.string(), errno);
  return fd;
}

}  // namespace starlane::wire
