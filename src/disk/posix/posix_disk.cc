#include "disk/posix/posix_disk.h"

#include "disk/posix/in_directory.h"

namespace starlane::disk {
namespace {

class PosixFile final : public BlockingFile {
 public:
  using BlockingFile::BlockingFile;

  void start(DiskOperation& op) override { op.batch->done(run(op)); }

 private:
  Status run(DiskOperation& op) {
    switch (op.kind) {
      case DiskOperation::Kind::sync:
        return sync();
      case DiskOperation::Kind::write:
        return write_all(fd(), op.offset, op.pieces.data(), op.count, path());
      case DiskOperation::Kind::read:
        break;
    }
    for (int i = 0; i < op.count; ++i) {
      const iovec& piece = op.pieces[static_cast<std::size_t>(i)];
      SL_TRY(read(op.offset, {static_cast<std::byte*>(piece.iov_base), piece.iov_len}));
      op.offset += piece.iov_len;
    }
    return {};
  }
};

class PosixDisk final : public DiskInDirectory {
 public:
  using DiskInDirectory::DiskInDirectory;

  Result<std::unique_ptr<DiskFile>> open(const std::string& name, OpenFile how) override {
    return std::unique_ptr<DiskFile>(
        std::make_unique<PosixFile>(SL_TRY(open_file(name, how)), path_of(name), allocates()));
  }
  std::string describe() const override { return "posix, " + kind_of_storage(); }
};

}  // namespace

std::unique_ptr<Disk> make_posix_disk(Directory directory, bool direct) {
  return std::make_unique<PosixDisk>(std::move(directory), direct);
}

}  // namespace starlane::disk
