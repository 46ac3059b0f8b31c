// The ioctls by which chattr and lsattr see flags of files: FS_IOC_GETFLAGS and SETFLAGS, and the
// FS_IOC_FSGETXATTR and FSSETXATTR that the kernel uses beside them. What is known of them is
// immutable and append-only. Pure functions; any thread.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/bytes.h"
#include "common/status.h"

namespace starlane::fuse {

enum class FlagsCall : std::uint8_t { get, set };
/// None: some other ioctl.
std::optional<FlagsCall> flags_call_of(std::uint32_t command);

/// What a `get` answers for flags of client/vfs.h, in the form that the command has.
struct FlagsAnswer {
  std::array<std::byte, 32> bytes{};
  std::size_t size = 0;
};
FlagsAnswer flags_answer(std::uint32_t command, std::uint32_t flags);
/// What a `set` asks for. unsupported: there is another flag among them; invalid: too short.
Result<std::uint32_t> flags_asked(std::uint32_t command, ByteSpan in);

}  // namespace starlane::fuse
