// The directory of a device, by plain system calls: what posix/ and uring/ share. Any thread.
#pragma once
#include <string>
#include <vector>

#include "common/status.h"
#include "common/unique_fd.h"
#include "disk/disk.h"

namespace starlane::disk {

class Directory {
 public:
  /// create: makes the last component if it is missing.
  static Result<Directory> open(const std::string& path, bool create);

  Result<UniqueFd> open_file(const std::string& name, OpenFile how, bool direct) const;
  Status remove(const std::string& name) const;
  Result<std::vector<std::string>> list() const;
  Status sync() const;
  Result<std::string> load(const std::string& name) const;
  Status save(const std::string& name, const std::string& contents) const;
  Status lock();
  Result<DiskSpace> space() const;
  /// tmpfs or ramfs.
  bool in_memory() const;
  /// Whether O_DIRECT transfers of a page work here: tried with a file, which is removed.
  bool supports_direct() const;
  const std::string& path() const { return path_; }

 private:
  std::string full(const std::string& name) const { return path_ + "/" + name; }

  std::string path_;
  UniqueFd fd_;
  UniqueFd lock_;
};

/// Blocking calls on one descriptor that go on after short transfers and signals.
Status read_all(int fd, std::uint64_t offset, MutableByteSpan out, const std::string& path);
Status write_all(int fd, std::uint64_t offset, iovec* pieces, int count, const std::string& path);
/// Holes, space and length of an open file.
Status punch_hole(int fd, std::uint64_t offset, std::uint64_t length, const std::string& path);
Status reserve_space(int fd, std::uint64_t end, bool allocate, const std::string& path);
/// Drops `done` bytes from the front of the pieces.
void advance(iovec*& pieces, int& count, std::size_t done);

}  // namespace starlane::disk
