// What we ask of the kernel when a mount starts: the one table of INIT flags wanted and refused,
// and the numbers beside them. Pure functions; any thread.
#pragma once
#include <span>
#include <string_view>

#include "common/status.h"
#include "fuse/protocol.h"

namespace starlane::fuse {

struct InitFlag {
  std::uint64_t bit;
  std::string_view name;
  bool wanted;
  std::string_view reason;
};
std::span<const InitFlag> init_flags();

struct Wishes {
  bool passthrough = true;            // wanted if the kernel has it and we may
  std::uint32_t max_write = 1 << 20;  // bytes of one WRITE, and of one READ; whole pages
};

struct Negotiated {
  InitOut answer;
  bool passthrough = false;
  bool wide_setxattr = false;
  bool resend = false;  // the kernel can send again what was not answered (6.9)
  std::uint32_t max_write = 0;
};

/// protocol: a kernel too old (before Linux 5.4) or of another major version.
Result<Negotiated> negotiate(const InitIn& in, const Wishes& wishes);

}  // namespace starlane::fuse
