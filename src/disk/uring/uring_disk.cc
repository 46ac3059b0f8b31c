#include "disk/uring/uring_disk.h"

#include "disk/posix/in_directory.h"
#include "disk/uring/ring.h"

namespace starlane::disk {
namespace {

class UringFile final : public BlockingFile {
 public:
  UringFile(UniqueFd fd, std::string path, bool allocate, Ring& ring)
      : BlockingFile(std::move(fd), std::move(path), allocate), ring_(ring), number_(this->fd()) {}

  void start(DiskOperation& op) override {
    op.file = &number_;
    ring_.start(op);
  }

 private:
  Ring& ring_;
  const int number_;
};

class UringDisk final : public DiskInDirectory {
 public:
  UringDisk(Directory directory, bool direct, std::unique_ptr<Ring> ring)
      : DiskInDirectory(std::move(directory), direct), ring_(std::move(ring)) {}

  Result<std::unique_ptr<DiskFile>> open(const std::string& name, OpenFile how) override {
    return std::unique_ptr<DiskFile>(std::make_unique<UringFile>(
        SL_TRY(open_file(name, how)), path_of(name), allocates(), *ring_));
  }
  std::string describe() const override { return "io_uring, " + kind_of_storage(); }

 private:
  const std::unique_ptr<Ring> ring_;
};

}  // namespace

Result<std::unique_ptr<Disk>> make_uring_disk(Directory directory, bool direct, unsigned depth) {
  auto ring = SL_TRY(Ring::create(depth));
  return std::unique_ptr<Disk>(
      std::make_unique<UringDisk>(std::move(directory), direct, std::move(ring)));
}

}  // namespace starlane::disk
