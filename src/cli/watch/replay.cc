#include "cli/watch/replay.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "common/errno.h"

namespace starlane::cli {
namespace {

using client::AccessEntry;
namespace fs = std::filesystem;

constexpr std::size_t kBuffer = 16 << 20;
constexpr std::size_t kOpenFiles = 512;

/// A name inside, however the log came to be written.
bool is_inside(const std::string& path) {
  if (path.empty() || path.starts_with("inode:")) return false;
  const fs::path parts(path);
  return parts.is_relative() && std::ranges::find(parts, "..") == parts.end();
}

bool names_two(const std::string& operation) {
  return operation == "rename" || operation == "rename2" || operation == "link" ||
         operation.starts_with("copy_file_range");
}

bool can_be_found(const AccessEntry& entry) {
  return is_inside(entry.path) && (!names_two(entry.operation) || is_inside(entry.other));
}

/// What must be there before an operation, for it to have been done.
enum class Kind : std::uint8_t { file, directory, link };
Kind kind_of(const AccessEntry& entry) {
  if (entry.operation.starts_with("opendir") || entry.operation.starts_with("readdir") ||
      entry.operation == "releasedir" || entry.operation == "fsyncdir" || entry.path == ".")
    return Kind::directory;
  return entry.operation == "readlink" ? Kind::link : Kind::file;
}

bool makes(const std::string& operation) {
  return operation == "create" || operation == "mkdir" || operation == "mknod" ||
         operation == "symlink";
}

}  // namespace

Result<std::vector<AccessEntry>> read_access_log(const std::string& file) {
  std::ifstream in(file);
  if (!in) return system_error("cannot read " + file, errno);
  std::string line;
  if (!std::getline(in, line) || line != client::kAccessLogHeader)
    return Status(Errc::corrupt, file + " is no access log of this version");
  std::vector<AccessEntry> log;
  for (std::size_t number = 2; std::getline(in, line); ++number) {
    auto entry = client::parse_access_line(line);
    if (!entry.ok() && in.eof()) break;  // cut off while it was written
    if (!entry.ok())
      return Status(Errc::corrupt,
                    file + ":" + std::to_string(number) + ": " + entry.status().text());
    log.push_back(std::move(*entry));
  }
  // Lines are in the order in which operations were noted, after their answers; programs depend on
  // the order of the questions.
  std::ranges::stable_sort(log, {}, &AccessEntry::at);
  return log;
}

// ---- What was there ----

namespace {

/// Walks the log as a file system would, to tell what it found from what it made.
class Found {
 public:
  void note(const AccessEntry& entry) {
    if (entry.error != 0) return;
    note_above(entry.path);
    if (names_two(entry.operation)) note_above(entry.other);
    if (makes(entry.operation)) {
      made_.insert(entry.path);
    } else if (!is_made(entry.path)) {
      note_found(entry);
    }
    if (names_two(entry.operation)) moved(entry);
    if (entry.operation == "unlink" || entry.operation == "rmdir") made_.insert(entry.path);
  }
  const std::map<std::string, std::pair<Kind, std::uint64_t>>& found() const { return found_; }

 private:
  bool is_made(const fs::path& path) const {
    for (fs::path at = path; !at.empty(); at = at.parent_path())
      if (made_.contains(at.string())) return true;
    return false;
  }
  void note_found(const AccessEntry& entry) {
    const auto [at, is_new] = found_.try_emplace(entry.path, kind_of(entry), 0);
    auto& [kind, length] = at->second;
    if (kind == Kind::file) kind = kind_of(entry);
    if (entry.operation == "rmdir") kind = Kind::directory;
    if (entry.operation == "read" || entry.operation.starts_with("copy_file_range"))
      length = std::max(length, entry.offset + entry.result);
  }
  void note_above(const fs::path& path) {
    for (fs::path above = path.parent_path(); !above.empty(); above = above.parent_path())
      if (!is_made(above)) found_[above.string()].first = Kind::directory;
  }
  /// The target's name is the log's own from now on; a copy's target was found if it was not made.
  void moved(const AccessEntry& entry) {
    if (entry.operation.starts_with("copy_file_range")) {
      if (!is_made(entry.other)) found_.try_emplace(entry.other, Kind::file, 0);
    } else {
      made_.insert(entry.other);
      if (entry.operation != "link") made_.insert(entry.path);
    }
  }

  std::map<std::string, std::pair<Kind, std::uint64_t>> found_;
  std::set<std::string> made_;
};

}  // namespace

Status Replay::prepare(const std::vector<AccessEntry>& log) {
  std::error_code failed;
  fs::create_directories(into_, failed);
  if (failed) return system_error("cannot make " + into_.string(), failed.value());
  if (!fs::is_empty(into_, failed))
    return Status(Errc::not_empty, into_.string() + " is not empty; give an empty directory");
  buffer_.resize(kBuffer);
  for (std::size_t i = 0; i < buffer_.size(); ++i)
    buffer_[i] = static_cast<char>((i * 2654435761U) >> 13);
  Found found;
  for (const AccessEntry& entry : log)
    if (can_be_found(entry)) found.note(entry);
  for (const auto& [path, what] : found.found()) {
    const fs::path here = at(path);
    fs::create_directories(what.first == Kind::directory ? here : here.parent_path(), failed);
    if (what.first == Kind::link) fs::create_symlink("target", here, failed);
    if (what.first != Kind::file || fs::exists(here, failed)) continue;
    std::ofstream out(here, std::ios::binary);
    for (std::uint64_t left = what.second; left != 0 && out;) {
      const std::uint64_t part = std::min<std::uint64_t>(left, buffer_.size());
      out.write(buffer_.data(), static_cast<std::streamsize>(part));
      left -= part;
    }
    if (!out.flush()) return Status(Errc::io, "cannot write " + here.string());
  }
  return {};
}

// ---- Again ----

const std::map<std::string, Replay::Do>& Replay::table() {
  static const std::map<std::string, Do> kTable{{"lookup", &Replay::look},
                                                {"getattr", &Replay::look},
                                                {"open", &Replay::open},
                                                {"create", &Replay::create},
                                                {"release", &Replay::close},
                                                {"read", &Replay::read},
                                                {"write", &Replay::write},
                                                {"fsync", &Replay::sync},
                                                {"truncate", &Replay::truncate},
                                                {"fallocate", &Replay::allocate},
                                                {"copy_file_range", &Replay::copy},
                                                {"copy_file_range_64", &Replay::copy},
                                                {"opendir", &Replay::list},
                                                {"readlink", &Replay::read_link},
                                                {"mkdir", &Replay::make_directory},
                                                {"mknod", &Replay::make_node},
                                                {"symlink", &Replay::make_symlink},
                                                {"link", &Replay::link},
                                                {"unlink", &Replay::unlink},
                                                {"rmdir", &Replay::remove_directory},
                                                {"rename", &Replay::rename},
                                                {"rename2", &Replay::rename},
                                                {"chmod", &Replay::change_mode},
                                                {"utimens", &Replay::touch},
                                                {"statfs", &Replay::space},
                                                {"setxattr", &Replay::set_attribute},
                                                {"getxattr", &Replay::get_attribute}};
  return kTable;
}

void Replay::run(const std::vector<AccessEntry>& log) {
  for (const AccessEntry& entry : log) {
    const auto how = table().find(entry.operation);
    if (how == table().end() || !can_be_found(entry)) {
      ++left_out_;
      continue;
    }
    const Nanoseconds began = system_clock().boot();
    const Outcome outcome = (this->*how->second)(entry);
    Line& line = lines_[entry.operation];
    line.replayed += system_clock().boot() - began;
    line.logged += entry.took;
    ++line.count;
    line.bytes += outcome.bytes;
    const bool moves = entry.operation == "read" || entry.operation == "write";
    if (outcome.done != (entry.error == 0) || (moves && outcome.bytes != entry.result))
      ++line.differ;
  }
  opened_.clear();
}

/// The descriptor that the log opened last, or one of our own.
int Replay::open_for(const std::string& path, bool writing) {
  std::deque<UniqueFd>& fds = opened_[path];
  for (auto fd = fds.rbegin(); fd != fds.rend(); ++fd) {
    const int mode = ::fcntl(fd->get(), F_GETFL) & O_ACCMODE;
    if (mode == O_RDWR || mode == (writing ? O_WRONLY : O_RDONLY)) return fd->get();
  }
  UniqueFd fd(::open(at(path).c_str(), (writing ? O_WRONLY : O_RDONLY) | O_CLOEXEC));
  if (!fd) return -1;
  fds.push_front(std::move(fd));
  return fds.front().get();
}

Replay::Outcome Replay::look(const AccessEntry& entry) {
  struct stat status {};
  return {::lstat(at(entry.path).c_str(), &status) == 0};
}

Replay::Outcome Replay::open(const AccessEntry& entry) {
  const int kept = O_ACCMODE | O_TRUNC | O_APPEND | O_SYNC | O_DSYNC;
  UniqueFd fd(
      ::open(at(entry.path).c_str(), (static_cast<int>(entry.argument) & kept) | O_CLOEXEC));
  if (!fd) return {};
  if (opened_.size() > kOpenFiles) opened_.clear();
  opened_[entry.path].push_back(std::move(fd));
  return {true};
}

Replay::Outcome Replay::create(const AccessEntry& entry) {
  const int flags = (static_cast<int>(entry.argument) & (O_ACCMODE | O_EXCL | O_TRUNC | O_APPEND));
  UniqueFd fd(::open(at(entry.path).c_str(), flags | O_CREAT | O_CLOEXEC,
                     static_cast<mode_t>(entry.length & 07777)));
  if (!fd) return {};
  if (opened_.size() > kOpenFiles) opened_.clear();
  opened_[entry.path].push_back(std::move(fd));
  return {true};
}

Replay::Outcome Replay::close(const AccessEntry& entry) {
  const auto fds = opened_.find(entry.path);
  if (fds == opened_.end()) return {true};  // its name has changed, or it was opened before the log
  if (!fds->second.empty()) fds->second.pop_back();
  if (fds->second.empty()) opened_.erase(fds);
  return {true};
}

Replay::Outcome Replay::read(const AccessEntry& entry) {
  const int fd = open_for(entry.path, false);
  const std::size_t wanted = std::min<std::uint64_t>(entry.length, buffer_.size());
  const ssize_t got =
      fd < 0 ? -1 : ::pread(fd, buffer_.data(), wanted, static_cast<off_t>(entry.offset));
  return {got >= 0, static_cast<std::uint64_t>(std::max<ssize_t>(got, 0))};
}

Replay::Outcome Replay::write(const AccessEntry& entry) {
  const int fd = open_for(entry.path, true);
  const std::size_t wanted = std::min<std::uint64_t>(entry.length, buffer_.size());
  const ssize_t put =
      fd < 0 ? -1 : ::pwrite(fd, buffer_.data(), wanted, static_cast<off_t>(entry.offset));
  return {put >= 0, static_cast<std::uint64_t>(std::max<ssize_t>(put, 0))};
}

Replay::Outcome Replay::sync(const AccessEntry& entry) {
  const int fd = open_for(entry.path, true);
  return {fd >= 0 && ::fsync(fd) == 0};
}

Replay::Outcome Replay::truncate(const AccessEntry& entry) {
  return {::truncate(at(entry.path).c_str(), static_cast<off_t>(entry.length)) == 0};
}

Replay::Outcome Replay::allocate(const AccessEntry& entry) {
  const int fd = open_for(entry.path, true);
  return {fd >= 0 &&
          ::fallocate(fd, static_cast<int>(entry.argument), static_cast<off_t>(entry.offset),
                      static_cast<off_t>(entry.length)) == 0};
}

Replay::Outcome Replay::copy(const AccessEntry& entry) {
  const int from = open_for(entry.path, false), to = open_for(entry.other, true);
  if (from < 0 || to < 0) return {};
  auto source = static_cast<off64_t>(entry.offset), target = static_cast<off64_t>(entry.argument);
  const ssize_t done = ::copy_file_range(from, &source, to, &target, entry.length, 0);
  return {done >= 0, static_cast<std::uint64_t>(std::max<ssize_t>(done, 0))};
}

Replay::Outcome Replay::list(const AccessEntry& entry) {
  DIR* directory = ::opendir(at(entry.path).c_str());
  if (directory == nullptr) return {};
  while (::readdir(directory) != nullptr) {
  }
  ::closedir(directory);
  return {true};
}

Replay::Outcome Replay::read_link(const AccessEntry& entry) {
  return {::readlink(at(entry.path).c_str(), buffer_.data(), 4096) >= 0};
}

Replay::Outcome Replay::make_directory(const AccessEntry& entry) {
  return {::mkdir(at(entry.path).c_str(), static_cast<mode_t>(entry.argument & 07777)) == 0};
}

/// Devices become pipes: a log brings back no device.
Replay::Outcome Replay::make_node(const AccessEntry& entry) {
  const auto mode = static_cast<mode_t>(entry.argument);
  const bool plain = S_ISREG(mode) || S_ISFIFO(mode) || S_ISSOCK(mode);
  return {::mknod(at(entry.path).c_str(), plain ? mode : (S_IFIFO | (mode & 07777)), 0) == 0};
}

/// Where it points does not matter to the file system, and may not lead out of here.
Replay::Outcome Replay::make_symlink(const AccessEntry& entry) {
  const std::string target(std::max<std::size_t>(entry.other.size(), 1), 'x');
  return {::symlink(target.c_str(), at(entry.path).c_str()) == 0};
}

Replay::Outcome Replay::link(const AccessEntry& entry) {
  return {::link(at(entry.path).c_str(), at(entry.other).c_str()) == 0};
}

Replay::Outcome Replay::unlink(const AccessEntry& entry) {
  return {::unlink(at(entry.path).c_str()) == 0};
}

Replay::Outcome Replay::remove_directory(const AccessEntry& entry) {
  return {::rmdir(at(entry.path).c_str()) == 0};
}

Replay::Outcome Replay::rename(const AccessEntry& entry) {
  const bool done = ::renameat2(AT_FDCWD, at(entry.path).c_str(), AT_FDCWD, at(entry.other).c_str(),
                                static_cast<unsigned>(entry.argument)) == 0;
  if (auto fds = opened_.extract(entry.path); done && !fds.empty()) {
    fds.key() = entry.other;
    opened_.erase(entry.other);
    opened_.insert(std::move(fds));
  }
  return {done};
}

Replay::Outcome Replay::change_mode(const AccessEntry& entry) {
  return {::chmod(at(entry.path).c_str(), static_cast<mode_t>(entry.argument & 07777)) == 0};
}

Replay::Outcome Replay::touch(const AccessEntry& entry) {
  return {::lutimes(at(entry.path).c_str(), nullptr) == 0};
}

Replay::Outcome Replay::space(const AccessEntry& entry) {
  struct statvfs status {};
  return {::statvfs(at(entry.path).c_str(), &status) == 0};
}

Replay::Outcome Replay::set_attribute(const AccessEntry& entry) {
  const std::size_t size = std::min<std::uint64_t>(entry.length, 65'536);
  return {::lsetxattr(at(entry.path).c_str(), entry.other.c_str(), buffer_.data(), size, 0) == 0};
}

Replay::Outcome Replay::get_attribute(const AccessEntry& entry) {
  const std::size_t room = std::min<std::uint64_t>(entry.length, 65'536);
  return {::lgetxattr(at(entry.path).c_str(), entry.other.c_str(),
                      room == 0 ? nullptr : buffer_.data(), room) >= 0};
}

}  // namespace starlane::cli
