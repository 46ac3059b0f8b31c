// One line of a mount's access log: an operation of an application, with its outcome and how long
// it took. A log begins with kAccessLogHeader; fields are separated by spaces, and what would not
// read as one field is written as %XX. Format: docs/formats.md, "Access log". Pure functions; any
// thread.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/status.h"

namespace starlane::client {

inline constexpr std::string_view kAccessLogHeader =
    "# starlane access log 1: time operation path other offset length argument pid error result us "
    "trace";

struct AccessEntry {
  WallTime at;            // when it was read from the kernel
  std::string operation;  // "read", "rename", as the kernel's opcodes, in lower case
  std::string path;       // from the root of the mount; "inode:NODE" where it is not known
  std::string other;      // new name, target of a link, name of an attribute
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint64_t argument = 0;  // flags of open and rename, mode, whence, offset of a copy's target
  std::uint32_t pid = 0;
  int error = 0;             // errno
  std::uint64_t result = 0;  // bytes read, written or copied
  Nanoseconds took{0};
  std::uint64_t trace = 0;
};

/// With its line end.
std::string to_line(const AccessEntry& entry);
/// Without line end. corrupt: not such a line.
Result<AccessEntry> parse_access_line(std::string_view line);

}  // namespace starlane::client
