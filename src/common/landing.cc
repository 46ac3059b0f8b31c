#include "common/landing.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/errno.h"

namespace starlane {

Status write_at(int file, std::uint64_t offset, ByteSpan bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return system_error("cannot write into the node cache", n < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return {};
}

Status Landing::put(std::uint64_t at, ByteSpan bytes) const {
  if (file_ >= 0) return write_at(file_, offset_ + at, bytes);
  std::memcpy(memory_.data() + at, bytes.data(), bytes.size());
  return {};
}

}  // namespace starlane
