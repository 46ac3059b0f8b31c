// Requests of the kernel, out of the bytes read from /dev/fuse: every length and string is checked
// before anyone looks at it. Pure functions; any thread. Names and data point into the buffer that
// was decoded.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "client/vfs.h"
#include "common/bytes.h"
#include "common/status.h"
#include "fuse/protocol.h"

namespace starlane::fuse {

struct Request {
  std::uint32_t opcode = 0;
  std::uint64_t unique = 0;  // as the answer must name it
  client::Node node;
  client::Caller caller;
  ByteSpan body;
  bool wide_setxattr = true;  // FUSE_SETXATTR_EXT was agreed on: since Linux 5.14
};

/// protocol: not a request at all (shorter than it says, or than a header).
Result<Request> decode_header(ByteSpan bytes);

// The operations that the Vfs serves, with their arguments.
namespace op {
struct Lookup {
  std::string_view name;
};
struct Forget {
  std::uint64_t lookups;
};
/// fuse_forget_one after fuse_forget_one.
struct BatchForget {
  ByteSpan entries;
  std::size_t size() const { return entries.size() / sizeof(fuse_forget_one); }
  fuse_forget_one at(std::size_t i) const {
    return load_little<fuse_forget_one>(entries.data() + i * sizeof(fuse_forget_one));
  }
};
struct GetAttributes {
  std::optional<std::uint64_t> handle;
};
struct SetAttributes {
  client::SetStat change;
};
struct ReadLink {};
struct MakeSymlink {
  std::string_view name, target;
};
struct MakeNode {
  std::string_view name;
  std::uint32_t mode, rdev;
};
struct MakeDirectory {
  std::string_view name;
  std::uint32_t mode;
};
struct Unlink {
  std::string_view name;
};
struct RemoveDirectory {
  std::string_view name;
};
struct Rename {
  std::string_view name;
  client::Node new_parent;
  std::string_view new_name;
  std::uint32_t flags;
};
struct Link {
  client::Node node;
  std::string_view name;
};
struct Open {
  std::uint32_t flags;
  bool kill_privileges;
};
struct Create {
  std::string_view name;
  std::uint32_t mode, flags;
  bool kill_privileges;
};
/// The name that the kernel sends with it means nothing.
struct CreateUnnamed {
  std::uint32_t mode, flags;
};
struct Ioctl {
  std::uint32_t command;
  ByteSpan in;
  std::uint32_t room;
};
struct Read {
  std::uint64_t handle, offset;
  std::uint32_t length;
};
struct Write {
  std::uint64_t handle, offset;
  ByteSpan bytes;
  client::WriteOptions options;
};
struct Flush {
  std::uint64_t handle, owner;
};
struct TestLock {
  client::LockRequest request;
};
struct SetLock {
  client::LockRequest request;
};
struct Release {
  std::uint64_t handle;
};
struct Fsync {
  std::uint64_t handle;
  bool data_only;
};
struct Fallocate {
  std::uint64_t handle, offset, length;
  std::uint32_t mode;
};
struct CopyRange {
  client::CopyRange range;
  bool wide_answer;
};
struct Seek {
  std::uint64_t handle, offset;
  int whence;
};
struct OpenDirectory {};
struct ReadDirectory {
  std::uint64_t handle, cookie;
  std::uint32_t length;
  bool with_attributes;
};
struct FsyncDirectory {
  std::uint64_t handle;
};
struct ReleaseDirectory {
  std::uint64_t handle;
};
struct GetXattr {
  std::string_view name;
  std::uint32_t room;
};
struct ListXattrs {
  std::uint32_t room;
};
struct SetXattr {
  std::string_view name, value;
  client::Vfs::SetXattr options;
};
struct RemoveXattr {
  std::string_view name;
};
struct StatFs {};
struct Interrupt {
  std::uint64_t unique;
};
struct Destroy {};
}  // namespace op

using Operation =
    std::variant<op::Lookup, op::Forget, op::BatchForget, op::GetAttributes, op::SetAttributes,
                 op::ReadLink, op::MakeSymlink, op::MakeNode, op::MakeDirectory, op::Unlink,
                 op::RemoveDirectory, op::Rename, op::Link, op::Open, op::Create, op::Read,
                 op::Write, op::Flush, op::Release, op::Fsync, op::Fallocate, op::CopyRange,
                 op::Seek, op::TestLock, op::SetLock, op::OpenDirectory, op::ReadDirectory,
                 op::FsyncDirectory, op::ReleaseDirectory, op::GetXattr, op::ListXattrs,
                 op::SetXattr, op::RemoveXattr, op::StatFs, op::CreateUnnamed, op::Ioctl,
                 op::Interrupt, op::Destroy>;

/// `caller` of the request gets the umask where the operation carries one. not_implemented: an
/// opcode that is not served; invalid, name_too_long: to be answered as such.
Result<Operation> decode_operation(Request& request);

/// At most so much is copied by one COPY_FILE_RANGE: its transaction stays bounded.
inline constexpr std::uint64_t kMaxCopy = 1_GiB;
inline constexpr std::size_t kMaxName = 255;

/// For logs.
std::string_view name_of_opcode(std::uint32_t opcode);

}  // namespace starlane::fuse
