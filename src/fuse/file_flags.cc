#include "fuse/file_flags.h"

#include <linux/fs.h>

#include <algorithm>

#include "client/vfs.h"

namespace starlane::fuse {
namespace {

static_assert(sizeof(fsxattr) == 28);

// FS_IOC_GETFLAGS names a long and passes an int.
bool is_plain(std::uint32_t command) {
  return command == FS_IOC_GETFLAGS || command == FS_IOC_SETFLAGS;
}

struct Bits {
  std::uint32_t immutable, append_only;
};
constexpr Bits kPlain{FS_IMMUTABLE_FL, FS_APPEND_FL};
constexpr Bits kExtended{FS_XFLAG_IMMUTABLE, FS_XFLAG_APPEND};

std::uint32_t to_kernel(std::uint32_t flags, const Bits& bits) {
  return ((flags & client::kImmutable) != 0 ? bits.immutable : 0) |
         ((flags & client::kAppendOnly) != 0 ? bits.append_only : 0);
}

Result<std::uint32_t> from_kernel(std::uint32_t flags, const Bits& bits) {
  if ((flags & ~(bits.immutable | bits.append_only)) != 0)
    return Status(Errc::unsupported, "the flags of a file are immutable and append-only");
  return ((flags & bits.immutable) != 0 ? client::kImmutable : 0) |
         ((flags & bits.append_only) != 0 ? client::kAppendOnly : 0);
}

template <typename T>
FlagsAnswer answer_of(const T& value) {
  FlagsAnswer answer;
  static_assert(sizeof value <= sizeof answer.bytes);
  store_little(answer.bytes.data(), value);
  answer.size = sizeof value;
  return answer;
}

}  // namespace

std::optional<FlagsCall> flags_call_of(std::uint32_t command) {
  switch (command) {
    case FS_IOC_GETFLAGS:
    case FS_IOC_FSGETXATTR:
      return FlagsCall::get;
    case FS_IOC_SETFLAGS:
    case FS_IOC_FSSETXATTR:
      return FlagsCall::set;
    default:
      return std::nullopt;
  }
}

FlagsAnswer flags_answer(std::uint32_t command, std::uint32_t flags) {
  if (is_plain(command)) return answer_of(to_kernel(flags, kPlain));
  fsxattr attributes{};
  attributes.fsx_xflags = to_kernel(flags, kExtended);
  return answer_of(attributes);
}

Result<std::uint32_t> flags_asked(std::uint32_t command, ByteSpan in) {
  if (in.size() < (is_plain(command) ? sizeof(std::uint32_t) : sizeof(fsxattr)))
    return Status(Errc::invalid, "flags that are cut short");
  if (is_plain(command)) return from_kernel(load_little<std::uint32_t>(in.data()), kPlain);
  const auto attributes = load_little<fsxattr>(in.data());
  if (attributes.fsx_projid != 0 || attributes.fsx_extsize != 0 || attributes.fsx_cowextsize != 0)
    return Status(Errc::unsupported, "files have neither projects nor extent sizes");
  return from_kernel(attributes.fsx_xflags, kExtended);
}

}  // namespace starlane::fuse
