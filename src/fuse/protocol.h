// The kernel's FUSE protocol up to 7.45: <linux/fuse.h> of Debian 12 (7.38, or older) and what it
// lacks. Plain data with sizes asserted; a newer system header takes precedence. Constants under
// names of our own, so that both can be seen.
#pragma once
#include <linux/fuse.h>
#include <sys/ioctl.h>

#include <cstddef>
#include <cstdint>

namespace starlane::fuse {

inline constexpr std::uint32_t kProtocolMajor = 7;
inline constexpr std::uint32_t kProtocolMinor = 45;     // newest we know
inline constexpr std::uint32_t kProtocolMinorMin = 31;  // Linux 5.4
/// From then on (Linux 5.14) the kernel checks who may change which flags before it asks for it.
inline constexpr std::uint32_t kProtocolMinorFlags = 34;

// Opcodes after 7.31, so that older headers will do.
inline constexpr std::uint32_t kOpSyncFs = 50;
inline constexpr std::uint32_t kOpTmpFile = 51;
inline constexpr std::uint32_t kOpStatx = 52;
inline constexpr std::uint32_t kOpCopyFileRange64 = 53;

// INIT flags (low word in flags, high word in flags2).
inline constexpr std::uint64_t kInitExt = 1ULL << 30;
inline constexpr std::uint64_t kInitHandleKillprivV2 = 1ULL << 28;
inline constexpr std::uint64_t kInitSetxattrExt = 1ULL << 29;
inline constexpr std::uint64_t kInitSecurityContext = 1ULL << 32;
inline constexpr std::uint64_t kInitInodeDax = 1ULL << 33;
inline constexpr std::uint64_t kInitCreateSupplementaryGroup = 1ULL << 34;
inline constexpr std::uint64_t kInitExpireOnly = 1ULL << 35;
inline constexpr std::uint64_t kInitDirectIoAllowMmap = 1ULL << 36;
inline constexpr std::uint64_t kInitPassthrough = 1ULL << 37;
inline constexpr std::uint64_t kInitNoExport = 1ULL << 38;
inline constexpr std::uint64_t kInitHasResend = 1ULL << 39;
inline constexpr std::uint64_t kInitAllowIdmap = 1ULL << 40;
inline constexpr std::uint64_t kInitOverIoUring = 1ULL << 41;
inline constexpr std::uint64_t kInitRequestTimeout = 1ULL << 42;

// OPEN answers.
inline constexpr std::uint32_t kOpenNoFlush = 1U << 5;
inline constexpr std::uint32_t kOpenParallelDirectWrites = 1U << 6;
inline constexpr std::uint32_t kOpenPassthrough = 1U << 7;

// OPEN, SETATTR and WRITE arguments of FUSE_HANDLE_KILLPRIV_V2.
inline constexpr std::uint32_t kOpenKillPrivileges = 1U << 0;
inline constexpr std::uint32_t kSetattrKillPrivileges = 1U << 11;
inline constexpr std::uint32_t kWriteKillPrivileges = 1U << 2;

/// A notification (7.40): all requests that were read and not answered come again.
inline constexpr std::int32_t kNotifyResend = 7;
/// Set in `unique` of a request that the kernel sends again.
inline constexpr std::uint64_t kUniqueResend = 1ULL << 63;

struct InitIn {
  std::uint32_t major, minor, max_readahead, flags, flags2;
  std::uint32_t unused[11];
};
static_assert(sizeof(InitIn) == 64);
inline constexpr std::size_t kInitInCompatSize = 16;  // before 7.36

struct InitOut {
  std::uint32_t major, minor, max_readahead, flags;
  std::uint16_t max_background, congestion_threshold;
  std::uint32_t max_write, time_gran;
  std::uint16_t max_pages, map_alignment;
  std::uint32_t flags2, max_stack_depth;
  std::uint16_t request_timeout;
  std::uint16_t unused[11];
};
static_assert(sizeof(InitOut) == 64);

struct OpenIn {
  std::uint32_t flags, open_flags;
};
static_assert(sizeof(OpenIn) == 8);

struct CreateIn {
  std::uint32_t flags, mode, umask, open_flags;
};
static_assert(sizeof(CreateIn) == 16);

struct OpenOut {
  std::uint64_t fh;
  std::uint32_t open_flags;
  std::int32_t backing_id;
};
static_assert(sizeof(OpenOut) == 16);

struct SetxattrIn {  // without FUSE_SETXATTR_EXT: the first two
  std::uint32_t size, flags, setxattr_flags, padding;
};
static_assert(sizeof(SetxattrIn) == 16);
inline constexpr std::uint32_t kSetxattrKillSetgid = 1U << 0;

struct CopyFileRangeOut {  // of kOpCopyFileRange64
  std::uint64_t bytes_copied;
};
static_assert(sizeof(CopyFileRangeOut) == 8);

struct IoctlIn {
  std::uint64_t fh;
  std::uint32_t flags, cmd;
  std::uint64_t arg;
  std::uint32_t in_size, out_size;
};
static_assert(sizeof(IoctlIn) == 32 && sizeof(IoctlIn) == sizeof(fuse_ioctl_in));
static_assert(sizeof(fuse_ioctl_out) == 16);

struct InHeader {
  std::uint32_t len, opcode;
  std::uint64_t unique, nodeid;
  std::uint32_t uid, gid, pid;
  std::uint16_t total_extlen, padding;
};
static_assert(sizeof(InHeader) == 40 && sizeof(InHeader) == sizeof(fuse_in_header));

struct BackingMap {
  std::int32_t fd;
  std::uint32_t flags;
  std::uint64_t padding;
};
static_assert(sizeof(BackingMap) == 16);
inline constexpr unsigned long kIocBackingOpen = _IOW(229, 1, BackingMap);
inline constexpr unsigned long kIocBackingClose = _IOW(229, 2, std::uint32_t);

// What the rest of the code takes from the system's header, as the kernel lays it out.
static_assert(sizeof(fuse_out_header) == 16);
static_assert(sizeof(fuse_attr) == 88);
static_assert(sizeof(fuse_entry_out) == 128);
static_assert(sizeof(fuse_attr_out) == 104);
static_assert(sizeof(fuse_setattr_in) == 88);
static_assert(sizeof(fuse_getattr_in) == 16);
static_assert(sizeof(fuse_mknod_in) == 16);
static_assert(sizeof(fuse_mkdir_in) == 8);
static_assert(sizeof(fuse_rename_in) == 8);
static_assert(sizeof(fuse_rename2_in) == 16);
static_assert(sizeof(fuse_link_in) == 8);
static_assert(sizeof(fuse_read_in) == 40);
static_assert(sizeof(fuse_write_in) == 40);
static_assert(sizeof(fuse_write_out) == 8);
static_assert(sizeof(fuse_release_in) == 24);
static_assert(sizeof(fuse_flush_in) == 24);
static_assert(sizeof(fuse_fsync_in) == 16);
static_assert(sizeof(fuse_fallocate_in) == 32);
static_assert(sizeof(fuse_copy_file_range_in) == 56);
static_assert(sizeof(fuse_lseek_in) == 24);
static_assert(sizeof(fuse_lk_in) == 48 && sizeof(fuse_lk_out) == 24);
static_assert(sizeof(fuse_lseek_out) == 8);
static_assert(sizeof(fuse_getxattr_in) == 8);
static_assert(sizeof(fuse_getxattr_out) == 8);
static_assert(sizeof(fuse_forget_one) == 16);
static_assert(sizeof(fuse_batch_forget_in) == 8);
static_assert(sizeof(fuse_statfs_out) == 80);
static_assert(sizeof(fuse_dirent) == 24);
static_assert(offsetof(fuse_direntplus, dirent) == 128);
static_assert(sizeof(fuse_notify_inval_inode_out) == 24);
static_assert(sizeof(fuse_notify_inval_entry_out) == 16);
static_assert(sizeof(fuse_notify_store_out) == 24);

}  // namespace starlane::fuse
