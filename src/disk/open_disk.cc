#include "disk/open_disk.h"

#include "disk/posix/posix_disk.h"
#include "disk/uring/uring_disk.h"

namespace starlane {

Result<std::unique_ptr<Disk>> open_disk(const std::string& path, const DiskOptions& options) {
  using Way = DiskOptions::Way;
  auto directory = SL_TRY(disk::Directory::open(path, options.create));
  const bool direct = !directory.in_memory() && directory.supports_direct();
  if (options.way == Way::posix || (options.way == Way::best && !direct)) {
    return disk::make_posix_disk(std::move(directory), direct);
  }
  auto uring = disk::make_uring_disk(std::move(directory), direct, options.depth);
  if (uring.ok() || options.way == Way::uring || uring.code() != Errc::unsupported) return uring;
  return disk::make_posix_disk(SL_TRY(disk::Directory::open(path, options.create)), direct);
}

}  // namespace starlane
