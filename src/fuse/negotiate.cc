#include "fuse/negotiate.h"

#include <algorithm>
#include <string>

namespace starlane::fuse {
namespace {

constexpr std::uint32_t kPage = 4096;

constexpr InitFlag kFlags[] = {
    {FUSE_ASYNC_READ, "ASYNC_READ", true, "several READs of one file in flight"},
    {FUSE_ATOMIC_O_TRUNC, "ATOMIC_O_TRUNC", true,
     "open and truncate are one step, so no length 0 is seen between"},
    {FUSE_BIG_WRITES, "BIG_WRITES", true, "more than a page in a WRITE"},
    {FUSE_DO_READDIRPLUS, "DO_READDIRPLUS", true, "names with attributes in one request"},
    {FUSE_READDIRPLUS_AUTO, "READDIRPLUS_AUTO", true,
     "but only where somebody asks for the attributes"},
    {FUSE_PARALLEL_DIROPS, "PARALLEL_DIROPS", true, "lookups in one directory do not queue"},
    {FUSE_ABORT_ERROR, "ABORT_ERROR", true, "an aborted connection is told from an unmount"},
    {FUSE_MAX_PAGES, "MAX_PAGES", true, "1 MiB in a READ or WRITE"},
    {FUSE_CACHE_SYMLINKS, "CACHE_SYMLINKS", true, "a symbolic link never changes"},
    {kInitHandleKillprivV2, "HANDLE_KILLPRIV_V2", true,
     "no GETXATTR before each WRITE; the Vfs clears suid and sgid"},
    {kInitExt, "INIT_EXT", true, "flags above bit 31"},
    {kInitExpireOnly, "HAS_EXPIRE_ONLY", false, "names are dropped, not expired"},
    {kInitDirectIoAllowMmap, "DIRECT_IO_ALLOW_MMAP", true,
     "shared maps of files open past the page cache"},
    {kInitPassthrough, "PASSTHROUGH", true, "the node cache; asked for only as root"},
    {FUSE_POSIX_LOCKS, "POSIX_LOCKS", true, "fcntl locks hold between hosts"},
    {FUSE_FLOCK_LOCKS, "FLOCK_LOCKS", true, "and those of flock"},
    {FUSE_POSIX_ACL, "POSIX_ACL", true, "the kernel checks access lists"},
    {FUSE_DONT_MASK, "DONT_MASK", true, "a default access list takes the place of the umask"},
    {kInitSetxattrExt, "SETXATTR_EXT", true, "an access list may cost the file its setgid bit"},
    {kInitNoExport, "NO_EXPORT_SUPPORT", true, "open_by_handle_at would walk out of a bind mount"},

    {FUSE_EXPORT_SUPPORT, "EXPORT_SUPPORT", false, "see NO_EXPORT_SUPPORT"},
    {FUSE_SPLICE_WRITE, "SPLICE_WRITE", false,
     "splice cost four times the processor time of plain buffers"},
    {FUSE_SPLICE_MOVE, "SPLICE_MOVE", false, "as SPLICE_WRITE"},
    {FUSE_SPLICE_READ, "SPLICE_READ", false, "as SPLICE_WRITE"},
    {FUSE_ASYNC_DIO, "ASYNC_DIO", false,
     "a direct read could then not be ended by a signal, not even by SIGKILL"},
    {FUSE_HAS_IOCTL_DIR, "HAS_IOCTL_DIR", false,
     "needs no consent: flags of directories (chattr) are asked for anyway"},
    {FUSE_AUTO_INVAL_DATA, "AUTO_INVAL_DATA", false,
     "would drop a file's pages after each local write; the Vfs says what a remote change makes "
     "invalid"},
    {FUSE_WRITEBACK_CACHE, "WRITEBACK_CACHE", false,
     "excludes passthrough, and acknowledges what only the kernel has"},
    {FUSE_NO_OPEN_SUPPORT, "NO_OPEN_SUPPORT", false,
     "OPEN is where close-to-open and passthrough are decided"},
    {FUSE_HANDLE_KILLPRIV, "HANDLE_KILLPRIV", false, "version 2 is wanted"},
    {FUSE_NO_OPENDIR_SUPPORT, "NO_OPENDIR_SUPPORT", false,
     "a directory handle remembers where a listing goes on"},
    {FUSE_EXPLICIT_INVAL_DATA, "EXPLICIT_INVAL_DATA", false,
     "a length that changed elsewhere would leave zeros in the last page"},
    {FUSE_MAP_ALIGNMENT, "MAP_ALIGNMENT", false, "DAX is for virtiofs"},
    {FUSE_SUBMOUNTS, "SUBMOUNTS", false,
     "one superblock, so that copy_file_range works between volumes"},
    {kInitSecurityContext, "SECURITY_CTX", false, "no SELinux labels yet"},
    {kInitInodeDax, "HAS_INODE_DAX", false, "DAX is for virtiofs"},
    {kInitCreateSupplementaryGroup, "CREATE_SUPP_GROUP", false,
     "default_permissions checks groups in the kernel"},
    {kInitHasResend, "HAS_RESEND", true,
     "what a daemon that died had not answered is sent to the next one"},
    {kInitAllowIdmap, "ALLOW_IDMAP", false, "not yet: the Vfs takes numbers as they are"},
    {kInitOverIoUring, "OVER_IO_URING", false,
     "no gain at 1 MiB, and its requests die with the task"},
    {kInitRequestTimeout, "REQUEST_TIMEOUT", false, "a server that is away is waited for"},
};

std::uint64_t wanted_bits(bool passthrough) {
  std::uint64_t bits = 0;
  for (const InitFlag& flag : kFlags)
    if (flag.wanted) bits |= flag.bit;
  return passthrough ? bits : bits & ~kInitPassthrough;
}

}  // namespace

std::span<const InitFlag> init_flags() { return kFlags; }

Result<Negotiated> negotiate(const InitIn& in, const Wishes& wishes) {
  if (in.major != kProtocolMajor || in.minor < kProtocolMinorMin) {
    return Status(Errc::protocol, "the kernel speaks FUSE " + std::to_string(in.major) + "." +
                                      std::to_string(in.minor) +
                                      "; 7.31 (Linux 5.4) or later is needed");
  }
  const std::uint64_t offered =
      in.flags | ((in.flags & kInitExt) != 0 ? std::uint64_t{in.flags2} << 32 : 0);
  const std::uint64_t taken = offered & wanted_bits(wishes.passthrough);
  const bool many_pages = (taken & FUSE_MAX_PAGES) != 0;
  Negotiated result{};
  result.passthrough = (taken & kInitPassthrough) != 0;
  result.wide_setxattr = (taken & kInitSetxattrExt) != 0;
  result.resend = (taken & kInitHasResend) != 0;
  result.max_write = many_pages ? std::max(kPage, wishes.max_write / kPage * kPage) : 32 * kPage;
  InitOut& out = result.answer;
  out.major = kProtocolMajor;
  out.minor = kProtocolMinor;
  out.max_readahead =
      UINT32_MAX / 2;  // the device's own figure rules; the kernel takes the smaller
  out.flags = static_cast<std::uint32_t>(taken);
  out.flags2 = static_cast<std::uint32_t>(taken >> 32);
  out.max_background = 65535;  // what is admitted at once is decided by volume, above
  out.congestion_threshold = 49151;
  out.max_write = result.max_write;
  out.time_gran = 1;
  out.max_pages =
      many_pages ? static_cast<std::uint16_t>(std::min(result.max_write / kPage, 65535U)) : 0;
  out.max_stack_depth = result.passthrough ? 1 : 0;
  return result;
}

}  // namespace starlane::fuse
