// What the flags of open(2) say. Pure.
#pragma once
#include <fcntl.h>

#include <cstdint>

namespace starlane::client {

inline bool writes(std::uint32_t flags) { return (flags & O_ACCMODE) != O_RDONLY; }
inline bool only_writes(std::uint32_t flags) { return (flags & O_ACCMODE) == O_WRONLY; }

}  // namespace starlane::client
