// Base of files that live in a directory: everything but the way of transfers. Any thread.
#pragma once
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "common/errno.h"
#include "disk/posix/directory.h"

namespace starlane::disk {

class FileInDirectory : public DiskFile {
 public:
  /// allocate: reserve() takes real blocks, so that later writes change no metadata.
  FileInDirectory(UniqueFd fd, std::string path, bool allocate)
      : fd_(std::move(fd)), path_(std::move(path)), allocate_(allocate) {}

  Status punch(std::uint64_t offset, std::uint64_t length) final {
    return punch_hole(fd_.get(), offset, length, path_);
  }
  Status reserve(std::uint64_t offset, std::uint64_t length) final {
    return reserve_space(fd_.get(), offset + length, allocate_, path_);
  }
  Status truncate(std::uint64_t length) final {
    if (::ftruncate(fd_.get(), static_cast<off_t>(length)) == 0) return {};
    return system_error("cannot truncate " + path_, errno);
  }
  Result<std::uint64_t> size() const final {
    const struct stat info = SL_TRY(status_of_file());
    return static_cast<std::uint64_t>(info.st_size);
  }
  Result<std::uint64_t> allocated() const final {
    const struct stat info = SL_TRY(status_of_file());
    return static_cast<std::uint64_t>(info.st_blocks) * 512;
  }

 protected:
  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }

 private:
  Result<struct stat> status_of_file() const {
    struct stat info {};
    if (::fstat(fd_.get(), &info) == 0) return info;
    return system_error("cannot stat " + path_, errno);
  }

  const UniqueFd fd_;
  const std::string path_;
  const bool allocate_;
};

/// Base of files whose blocking transfers are system calls of the caller.
class BlockingFile : public FileInDirectory {
 public:
  using FileInDirectory::FileInDirectory;

  Status read(std::uint64_t offset, MutableByteSpan out) final {
    return read_all(fd(), offset, out, path());
  }
  Status write(std::uint64_t offset, ByteSpan bytes) final { return write(offset, bytes, {}); }
  Status write(std::uint64_t offset, ByteSpan first, ByteSpan second) final {
    std::array<iovec, 2> pieces{iovec{const_cast<std::byte*>(first.data()), first.size()},
                                iovec{const_cast<std::byte*>(second.data()), second.size()}};
    return write_all(fd(), offset, pieces.data(), 2, path());
  }
  Status sync() final {
    if (::fdatasync(fd()) == 0) return {};
    return system_error("cannot sync " + path(), errno);
  }
};

/// Base of disks that are a directory: everything but opening files.
class DiskInDirectory : public Disk {
 public:
  DiskInDirectory(Directory directory, bool direct)
      : directory_(std::move(directory)), direct_(direct), in_memory_(directory_.in_memory()) {}

  Status remove(const std::string& name) final { return directory_.remove(name); }
  Result<std::vector<std::string>> list() const final { return directory_.list(); }
  Status sync_directory() final { return directory_.sync(); }
  Result<std::string> load(const std::string& name) const final { return directory_.load(name); }
  Status save(const std::string& name, const std::string& contents) final {
    return directory_.save(name, contents);
  }
  Status lock() final { return directory_.lock(); }
  Result<DiskSpace> space() const final { return directory_.space(); }
  DiskTraits traits() const final { return {direct_ ? kDiskPage : 1, in_memory_}; }
  std::string directory() const final { return directory_.path(); }

 protected:
  /// The descriptor of a file, and what FileInDirectory wants to know.
  Result<UniqueFd> open_file(const std::string& name, OpenFile how) const {
    return directory_.open_file(name, how, direct_);
  }
  std::string path_of(const std::string& name) const { return directory_.path() + "/" + name; }
  bool allocates() const { return !in_memory_; }
  std::string kind_of_storage() const {
    return direct_ ? "O_DIRECT" : in_memory_ ? "tmpfs" : "page cache";
  }

 private:
  Directory directory_;
  const bool direct_;
  const bool in_memory_;
};

}  // namespace starlane::disk
