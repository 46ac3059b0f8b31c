// An open file of the C interface. Any thread; closed by one.
#pragma once
#include <fcntl.h>

#include "capi/client.h"

struct sl_file {
  sl_client* client = nullptr;
  std::uint64_t handle = 0;
  starlane::capi::Remembered node;
  int flags = 0;
  std::atomic<int> in_batches{0};  // pieces that may still use it; pairs with sl_close

  bool reads() const { return (flags & O_ACCMODE) != O_WRONLY; }
  bool writes() const { return (flags & O_ACCMODE) != O_RDONLY; }
};

namespace starlane::capi {

/// [offset, offset + to.size()): how many bytes there were.
Result<std::uint64_t> read(const sl_file& file, const Calls::Scope& scope, std::uint64_t offset,
                           MutableByteSpan to);
Result<std::uint64_t> write(const sl_file& file, const Calls::Scope& scope, std::uint64_t offset,
                            ByteSpan from);

}  // namespace starlane::capi
