// A disk by pread and pwrite: on tmpfs, where the page cache is the device, and wherever io_uring
// is forbidden.
#pragma once
#include "disk/posix/directory.h"

namespace starlane::disk {

/// direct: with O_DIRECT, which the directory must support.
std::unique_ptr<Disk> make_posix_disk(Directory directory, bool direct);

}  // namespace starlane::disk
