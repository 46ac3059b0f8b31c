#include "disk/posix/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include "common/errno.h"

namespace starlane::disk {
namespace {

constexpr std::size_t kMostSmall = 1_MiB;

}  // namespace

Result<Directory> Directory::open(const std::string& path, bool create) {
  if (create && ::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return system_error("cannot create " + path, errno);
  }
  Directory result;
  result.path_ = path;
  result.fd_.reset(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!result.fd_) return system_error("cannot open " + path, errno);
  return result;
}

Result<UniqueFd> Directory::open_file(const std::string& name, OpenFile how, bool direct) const {
  int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
  if (how == OpenFile::create) flags |= O_CREAT | O_EXCL;
  if (direct) flags |= O_DIRECT;
  UniqueFd fd(::openat(fd_.get(), name.c_str(), flags, 0600));
  if (!fd) return system_error("cannot open " + full(name), errno);
  return fd;
}

Status Directory::remove(const std::string& name) const {
  if (::unlinkat(fd_.get(), name.c_str(), 0) == 0) return {};
  return system_error("cannot remove " + full(name), errno);
}

Result<std::vector<std::string>> Directory::list() const {
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(path_.c_str()), ::closedir);
  if (!stream) return system_error("cannot list " + path_, errno);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(entry->d_type == DT_DIR ? name + "/" : name);
  }
  if (errno != 0) return system_error("cannot list " + path_, errno);
  std::ranges::sort(names);
  return names;
}

Status Directory::sync() const {
  if (::fsync(fd_.get()) == 0) return {};
  return system_error("cannot sync " + path_, errno);
}

Result<std::string> Directory::load(const std::string& name) const {
  const UniqueFd fd(::openat(fd_.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return system_error("cannot open " + full(name), errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return system_error("cannot stat " + full(name), errno);
  if (!S_ISREG(info.st_mode) || static_cast<std::uint64_t>(info.st_size) > kMostSmall) {
    return Status(Errc::invalid, full(name) + " is not a small file");
  }
  std::string contents(static_cast<std::size_t>(info.st_size), '\0');
  SL_TRY(read_all(fd.get(), 0, std::as_writable_bytes(std::span(contents)), full(name)));
  return contents;
}

Status Directory::save(const std::string& name, const std::string& contents) const {
  SL_CHECK(contents.size() <= kMostSmall);
  const std::string fresh = name + ".new";
  const UniqueFd fd(::openat(fd_.get(), fresh.c_str(),
                             O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return system_error("cannot create " + full(fresh), errno);
  iovec piece{const_cast<char*>(contents.data()), contents.size()};
  SL_TRY(write_all(fd.get(), 0, &piece, 1, full(fresh)));
  if (::fsync(fd.get()) != 0) return system_error("cannot sync " + full(fresh), errno);
  if (::renameat(fd_.get(), fresh.c_str(), fd_.get(), name.c_str()) != 0) {
    return system_error("cannot rename " + full(fresh), errno);
  }
  return sync();
}

Status Directory::lock() {
  UniqueFd fd(::openat(fd_.get(), "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return system_error("cannot open " + full("lock"), errno);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return system_error("cannot lock " + full("lock"), errno);
    return Status(Errc::busy, path_ + " is in use by another process");
  }
  lock_ = std::move(fd);
  return {};
}

Result<DiskSpace> Directory::space() const {
  struct statvfs info {};
  if (::fstatvfs(fd_.get(), &info) != 0) return system_error("cannot stat " + path_, errno);
  const std::uint64_t unit = info.f_frsize;
  return DiskSpace{info.f_blocks * unit, info.f_bavail * unit};
}

bool Directory::in_memory() const {
  struct statfs info {};
  if (::fstatfs(fd_.get(), &info) != 0) return false;
  return info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC;
}

bool Directory::supports_direct() const {
  const std::string name = "probe." + std::to_string(::getpid());
  auto fd = open_file(name, OpenFile::create, true);
  if (!fd.ok()) return false;
  (void)remove(name);
  const std::unique_ptr<void, void (*)(void*)> page(std::aligned_alloc(kDiskPage, kDiskPage),
                                                    std::free);
  if (!page) return false;
  std::fill_n(static_cast<char*>(page.get()), kDiskPage, 'p');
  constexpr auto kLength = static_cast<ssize_t>(kDiskPage);
  return ::pwrite(fd->get(), page.get(), kDiskPage, 0) == kLength &&
         ::pread(fd->get(), page.get(), kDiskPage, 0) == kLength;
}

void advance(iovec*& pieces, int& count, std::size_t done) {
  while (count > 0 && done >= pieces->iov_len) {
    done -= pieces->iov_len;
    ++pieces;
    --count;
  }
  if (count > 0) {
    pieces->iov_base = static_cast<char*>(pieces->iov_base) + done;
    pieces->iov_len -= done;
  }
}

Status read_all(int fd, std::uint64_t offset, MutableByteSpan out, const std::string& path) {
  while (!out.empty()) {
    const ssize_t n = ::pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error("cannot read " + path, errno);
    if (n == 0) return Status(Errc::io, path + " ends at " + std::to_string(offset));
    out = out.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return {};
}

Status write_all(int fd, std::uint64_t offset, iovec* pieces, int count, const std::string& path) {
  advance(pieces, count, 0);
  while (count > 0) {
    const ssize_t n = ::pwritev(fd, pieces, count, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error("cannot write " + path, errno);
    if (n == 0) return Status(Errc::io, "cannot write " + path + ": nothing was taken");
    offset += static_cast<std::uint64_t>(n);
    advance(pieces, count, static_cast<std::size_t>(n));
  }
  return {};
}

Status punch_hole(int fd, std::uint64_t offset, std::uint64_t length, const std::string& path) {
  if (::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                  static_cast<off_t>(length)) == 0) {
    return {};
  }
  return system_error("cannot punch a hole into " + path, errno);
}

Status reserve_space(int fd, std::uint64_t end, bool allocate, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return system_error("cannot stat " + path, errno);
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (end <= size) return {};
  if (allocate) {
    const auto from = static_cast<off_t>(size);
    if (::fallocate(fd, 0, from, static_cast<off_t>(end) - from) == 0) return {};
    if (errno != EOPNOTSUPP && errno != ENOSYS) {
      return system_error("cannot reserve space in " + path, errno);
    }
  }
  if (::ftruncate(fd, static_cast<off_t>(end)) == 0) return {};
  return system_error("cannot extend " + path, errno);
}

}  // namespace starlane::disk
