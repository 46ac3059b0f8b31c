// A disk by io_uring with O_DIRECT: one ring and one thread that completes what any thread started.
// A caller that waits for one transfer makes the system call itself: the ring would cost it two or
// three switches (measured: a small write of 80 us became 2 ms on a machine whose cores were busy).
#pragma once
#include "disk/posix/directory.h"

namespace starlane::disk {

/// depth: operations in flight at once. direct: O_DIRECT, which the directory must support.
/// unsupported when the kernel or the container forbids io_uring: take posix then.
Result<std::unique_ptr<Disk>> make_uring_disk(Directory directory, bool direct, unsigned depth);

}  // namespace starlane::disk
