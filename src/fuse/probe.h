// What this machine's kernel offers a FUSE server of this process: heard from the INIT of a mount
// that lives for a moment on a directory of its own. Blocks for milliseconds; any thread.
#pragma once
#include <cstdint>

#include "common/status.h"

namespace starlane::fuse {

struct KernelOffer {
  std::uint32_t major = 0, minor = 0;  // of the protocol
  bool passthrough = false, resend = false, direct_maps = false, over_io_uring = false;
  bool passthrough_works = false;  // for this process
  bool raised_read_ahead = false;
};

/// Errors: those of Session::start, as sentences for the user.
Result<KernelOffer> probe_kernel();

}  // namespace starlane::fuse
