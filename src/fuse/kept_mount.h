// What a daemon writes into the ledger of the mount itself, so that the next one can go on with it:
// a record of the kind `mount`. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "client/takeover/ledger.h"
#include "fuse/mount.h"
#include "fuse/protocol.h"

namespace starlane::fuse {

struct KeptMount {
  Mount::Facts mount;
  // As INIT settled it, which the kernel says only once.
  bool passthrough = false;
  bool wide_setxattr = false;
  bool kernel_checks_flags = false;
  bool raised_read_ahead = false;
  std::uint32_t max_write = 0;
  InitIn heard{};
  std::vector<std::string> limitations;
  std::vector<std::string> bound;
};

std::vector<std::byte> encode(const KeptMount& kept);
/// invalid: the ledger does not say.
Result<KeptMount> kept_mount(client::Ledger* ledger);

}  // namespace starlane::fuse
