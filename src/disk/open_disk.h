// Chooses how to reach the device behind a directory, by trying. Any thread.
#pragma once
#include <memory>
#include <string>

#include "disk/disk.h"

namespace starlane {

struct DiskOptions {
  enum class Way : std::uint8_t {
    best,   // io_uring with O_DIRECT where both work; else posix
    posix,  // never io_uring
    uring,  // io_uring or an error
  };
  Way way = Way::best;
  unsigned depth = 128;  // operations in flight on one device
  bool create = true;    // make the directory if only its last component is missing
};

/// The device of `directory`. Errors: not_found, access, unsupported (io_uring was asked for and is
/// forbidden).
Result<std::unique_ptr<Disk>> open_disk(const std::string& directory, const DiskOptions& options);

}  // namespace starlane
