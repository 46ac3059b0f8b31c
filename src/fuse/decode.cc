#include "fuse/decode.h"

#include <fcntl.h>

#include <algorithm>

namespace starlane::fuse {
namespace {

using client::Node;

Status malformed() { return Status(Errc::invalid, "a FUSE request is shorter than its arguments"); }

// Takes arguments off the front of a request's body.
class Reader {
 public:
  explicit Reader(ByteSpan body) : rest_(body) {}

  template <typename T>
  Result<T> take() {
    if (rest_.size() < sizeof(T)) return malformed();
    const T value = load_little<T>(rest_.data());
    rest_ = rest_.subspan(sizeof(T));
    return value;
  }
  Result<std::string_view> text() {
    const std::string_view all = text_of(rest_);
    const std::size_t end = all.find('\0');
    if (end == std::string_view::npos) return malformed();
    rest_ = rest_.subspan(end + 1);
    return all.substr(0, end);
  }
  /// A name in a directory.
  Result<std::string_view> name() {
    const std::string_view found = SL_TRY(text());
    if (found.size() > kMaxName)
      return Status(Errc::name_too_long, "a name is longer than 255 bytes");
    if (found.empty() || found == "." || found == ".." ||
        found.find('/') != std::string_view::npos) {
      return Status(Errc::invalid, "not a name in a directory");
    }
    return found;
  }
  Result<std::string_view> attribute_name() {
    const std::string_view found = SL_TRY(text());
    if (found.empty()) return Status(Errc::invalid, "an extended attribute without a name");
    if (found.size() > kMaxName)
      return Status(Errc::range, "the name of an extended attribute is too long");
    return found;
  }
  Result<ByteSpan> bytes(std::uint64_t length) {
    if (rest_.size() < length) return malformed();
    const ByteSpan taken = rest_.first(length);
    rest_ = rest_.subspan(length);
    return taken;
  }

 private:
  ByteSpan rest_;
};

// Signed 64-bit offsets are what POSIX and the layers below know.
Status check_range(std::uint64_t offset, std::uint64_t length) {
  if (offset > INT64_MAX || length > INT64_MAX - offset) {
    return Status(Errc::file_too_large, "an offset beyond 2^63");
  }
  return {};
}

WallTime wall_time(std::uint64_t seconds, std::uint32_t nanoseconds) {
  return {static_cast<std::int64_t>(seconds), std::min(nanoseconds, 999'999'999U)};
}

Result<Operation> get_attributes(Request&, Reader reader) {
  const auto in = SL_TRY(reader.take<fuse_getattr_in>());
  op::GetAttributes operation{};
  if ((in.getattr_flags & FUSE_GETATTR_FH) != 0) operation.handle = in.fh;
  return Operation(operation);
}

Result<Operation> set_attributes(Request&, Reader reader) {
  const auto in = SL_TRY(reader.take<fuse_setattr_in>());
  const auto has = [&](std::uint32_t bit) { return (in.valid & bit) != 0; };
  client::SetStat change;
  if (has(FATTR_MODE)) change.mode = in.mode;
  if (has(FATTR_UID)) change.uid = in.uid;
  if (has(FATTR_GID)) change.gid = in.gid;
  if (has(FATTR_SIZE)) {
    SL_TRY(check_range(in.size, 0));
    change.length = in.size;
  }
  if (has(FATTR_ATIME)) change.atime = wall_time(in.atime, in.atimensec);
  if (has(FATTR_MTIME)) change.mtime = wall_time(in.mtime, in.mtimensec);
  if (has(FATTR_CTIME)) change.ctime = wall_time(in.ctime, in.ctimensec);
  change.atime_now = has(FATTR_ATIME_NOW);
  change.mtime_now = has(FATTR_MTIME_NOW);
  change.kill_privileges = has(kSetattrKillPrivileges);
  if (has(FATTR_FH)) change.handle = in.fh;
  return Operation(op::SetAttributes{change});
}

Result<Operation> make_symlink(Request&, Reader reader) {
  const std::string_view name = SL_TRY(reader.name());
  const std::string_view target = SL_TRY(reader.text());
  if (target.empty()) return Status(Errc::not_found, "a symbolic link to nothing");
  return Operation(op::MakeSymlink{name, target});
}

Result<Operation> make_node(Request& request, Reader reader) {
  const auto in = SL_TRY(reader.take<fuse_mknod_in>());
  request.caller.umask = in.umask;
  return Operation(op::MakeNode{SL_TRY(reader.name()), in.mode, in.rdev});
}

Result<Operation> make_directory(Request& request, Reader reader) {
  const auto in = SL_TRY(reader.take<fuse_mkdir_in>());
  request.caller.umask = in.umask;
  return Operation(op::MakeDirectory{SL_TRY(reader.name()), in.mode});
}

Result<Operation> rename(Request& request, Reader reader) {
  const std::uint64_t new_parent = SL_TRY(reader.take<std::uint64_t>());
  std::uint32_t flags = 0;
  if (request.opcode == FUSE_RENAME2) {
    flags = SL_TRY(reader.take<std::uint32_t>());
    SL_TRY(reader.take<std::uint32_t>());
  }
  const std::string_view name = SL_TRY(reader.name());
  const std::string_view new_name = SL_TRY(reader.name());
  return Operation(op::Rename{name, Node::unpack(new_parent), new_name, flags});
}

Result<Operation> link(Request&, Reader reader) {
  const auto in = SL_TRY(reader.take<fuse_link_in>());
  return Operation(op::Link{Node::unpack(in.oldnodeid), SL_TRY(reader.name())});
}

Result<Operation> open(Request&, Reader reader) {
  const auto in = SL_TRY(reader.take<OpenIn>());
  return Operation(op::Open{in.flags, (in.open_flags & kOpenKillPrivileges) != 0});
}

Result<Operation> create(Request& request, Reader reader) {
  const auto in = SL_TRY(reader.take<CreateIn>());
  request.caller.umask = in.umask;
  return Operation(op::Create{SL_TRY(reader.name()), in.mode, in.flags,
                              (in.open_flags & kOpenKillPrivileges) != 0});
}

Result<Operation> create_unnamed(Request& request, Reader reader) {
  const auto in = SL_TRY(reader.take<CreateIn>());
  request.caller.umask = in.umask;
  return Operation(op::CreateUnnamed{in.mode, in.flags});
}

Result<Operation> ioctl(Request&, Reader reader) {
  const auto in = SL_TRY(reader.take<IoctlIn>());
  return Operation(op::Ioctl{in.cmd, SL_TRY(reader.bytes(in.in_size)), in.out_size});
}

Result<Operation> read(Request&, Reader reader) {
  const auto in = SL_TRY(reader.take<fuse_read_in>());
  SL_TRY(check_range(in.offset, in.size));
  return Operation(op::Read{in.fh, in.offset, in.size});
}

Result<Operation> write(Request&, Reader reader) {
  const auto in = SL_TRY(reader.take<fuse_write_in>());
  SL_TRY(check_range(in.offset, in.size));
  client::WriteOptions options;
  options.synchronous = (in.flags & (O_SYNC | O_DSYNC)) != 0;
  options.append = (in.flags & O_APPEND) != 0;
  options.kill_privileges = (in.write_flags & kWriteKillPrivileges) != 0;
  options.from_page_cache = (in.write_flags & FUSE_WRITE_CACHE) != 0;
  if (options.from_page_cache)
    options.append = options.synchronous = false;  // the flags are of a descriptor guessed
  return Operation(op::Write{in.fh, in.offset, SL_TRY(reader.bytes(in.size)), options});
}

Result<Operation> fsync(Request& request, Reader reader) {
  const auto in = SL_TRY(reader.take<fuse_fsync_in>());
  if (request.opcode == FUSE_FSYNCDIR) return Operation(op::FsyncDirectory{in.fh});
  return Operation(op::Fsync{in.fh, (in.fsync_flags & FUSE_FSYNC_FDATASYNC) != 0});
}

Result<Operation> release(Request& request, Reader reader) {
  const auto in = SL_TRY(reader.take<fuse_release_in>());
  if (request.opcode == FUSE_RELEASEDIR) return Operation(op::ReleaseDirectory{in.fh});
  return Operation(op::Release{in.fh});
}

Result<Operation> flush(Request&, Reader reader) {
  const auto in = SL_TRY(reader.take<fuse_flush_in>());
  return Operation(op::Flush{in.fh, in.lock_owner});
}

Result<Operation> lock(Request& request, Reader reader) {
  const auto in = SL_TRY(reader.take<fuse_lk_in>());
  if (in.lk.start > in.lk.end || in.lk.end > INT64_MAX)
    return Status(Errc::invalid, "a lock's range ends before it starts, or beyond 2^63");
  if (in.lk.type != F_RDLCK && in.lk.type != F_WRLCK && in.lk.type != F_UNLCK)
    return Status(Errc::invalid, "a lock of no known type");
  client::LockRequest asked;
  asked.handle = in.fh;
  asked.owner = in.owner;
  asked.lock.kind =
      (in.lk_flags & FUSE_LK_FLOCK) != 0 ? client::LockKind::flock : client::LockKind::record;
  asked.lock.type = in.lk.type == F_RDLCK   ? client::LockType::read
                    : in.lk.type == F_WRLCK ? client::LockType::write
                                            : client::LockType::unlock;
  asked.lock.start = in.lk.start;
  asked.lock.end = in.lk.end;
  asked.lock.pid = in.lk.pid;
  if (request.opcode == FUSE_GETLK) return Operation(op::TestLock{asked});
  return Operation(op::SetLock{asked});
}

Result<Operation> fallocate(Request&, Reader reader) {
  const auto in = SL_TRY(reader.take<fuse_fallocate_in>());
  SL_TRY(check_range(in.offset, in.length));
  return Operation(op::Fallocate{in.fh, in.offset, in.length, in.mode});
}

Result<Operation> copy_range(Request& request, Reader reader) {
  const auto in = SL_TRY(reader.take<fuse_copy_file_range_in>());
  if (in.flags != 0) return Status(Errc::invalid, "unknown flags of copy_file_range");
  const std::uint64_t length = std::min(in.len, kMaxCopy);
  SL_TRY(check_range(in.off_in, length));
  SL_TRY(check_range(in.off_out, length));
  return Operation(op::CopyRange{{in.fh_in, in.off_in, in.fh_out, in.off_out, length},
                                 request.opcode == kOpCopyFileRange64});
}

Result<Operation> seek(Request&, Reader reader) {
  const auto in = SL_TRY(reader.take<fuse_lseek_in>());
  SL_TRY(check_range(in.offset, 0));
  if (in.whence != SEEK_DATA && in.whence != SEEK_HOLE)
    return Status(Errc::invalid, "only SEEK_DATA and SEEK_HOLE");
  return Operation(op::Seek{in.fh, in.offset, static_cast<int>(in.whence)});
}

Result<Operation> read_directory(Request& request, Reader reader) {
  const auto in = SL_TRY(reader.take<fuse_read_in>());
  return Operation(
      op::ReadDirectory{in.fh, in.offset, in.size, request.opcode == FUSE_READDIRPLUS});
}

Result<Operation> set_xattr(Request& request, Reader reader) {
  SetxattrIn in{};
  if (request.wide_setxattr) {
    in = SL_TRY(reader.take<SetxattrIn>());
  } else {
    in.size = SL_TRY(reader.take<std::uint32_t>());
    in.flags = SL_TRY(reader.take<std::uint32_t>());
  }
  const std::string_view name = SL_TRY(reader.attribute_name());
  const ByteSpan value = SL_TRY(reader.bytes(in.size));
  return Operation(op::SetXattr{
      name,
      text_of(value),
      {.flags = in.flags, .kill_setgid = (in.setxattr_flags & kSetxattrKillSetgid) != 0}});
}

Result<Operation> get_xattr(Request& request, Reader reader) {
  const auto in = SL_TRY(reader.take<fuse_getxattr_in>());
  if (request.opcode == FUSE_LISTXATTR) return Operation(op::ListXattrs{in.size});
  return Operation(op::GetXattr{SL_TRY(reader.attribute_name()), in.size});
}

Result<Operation> batch_forget(Request&, Reader reader) {
  const auto in = SL_TRY(reader.take<fuse_batch_forget_in>());
  return Operation(
      op::BatchForget{SL_TRY(reader.bytes(std::uint64_t{in.count} * sizeof(fuse_forget_one)))});
}

template <typename Op>
Result<Operation> plain(Request&, Reader) {
  return Operation(Op{});
}
template <typename Op>
Result<Operation> named(Request&, Reader reader) {
  return Operation(Op{SL_TRY(reader.name())});
}
template <typename Op, typename In>
Result<Operation> numbered(Request&, Reader reader) {  // In starts with the one number that counts
  static_assert(sizeof(In) >= sizeof(std::uint64_t));
  const In in = SL_TRY(reader.take<In>());
  return Operation(Op{load_little<std::uint64_t>(&in)});
}
Result<Operation> remove_xattr(Request&, Reader reader) {
  return Operation(op::RemoveXattr{SL_TRY(reader.attribute_name())});
}

using Decode = Result<Operation> (*)(Request&, Reader);
struct Row {
  std::uint32_t opcode;
  std::string_view name;
  Decode decode;
};
constexpr Row kRows[] = {
    {FUSE_LOOKUP, "LOOKUP", named<op::Lookup>},
    {FUSE_FORGET, "FORGET", numbered<op::Forget, fuse_forget_in>},
    {FUSE_GETATTR, "GETATTR", get_attributes},
    {FUSE_SETATTR, "SETATTR", set_attributes},
    {FUSE_READLINK, "READLINK", plain<op::ReadLink>},
    {FUSE_SYMLINK, "SYMLINK", make_symlink},
    {FUSE_MKNOD, "MKNOD", make_node},
    {FUSE_MKDIR, "MKDIR", make_directory},
    {FUSE_UNLINK, "UNLINK", named<op::Unlink>},
    {FUSE_RMDIR, "RMDIR", named<op::RemoveDirectory>},
    {FUSE_RENAME, "RENAME", rename},
    {FUSE_LINK, "LINK", link},
    {FUSE_OPEN, "OPEN", open},
    {FUSE_READ, "READ", read},
    {FUSE_WRITE, "WRITE", write},
    {FUSE_STATFS, "STATFS", plain<op::StatFs>},
    {FUSE_RELEASE, "RELEASE", release},
    {FUSE_FSYNC, "FSYNC", fsync},
    {FUSE_SETXATTR, "SETXATTR", set_xattr},
    {FUSE_GETXATTR, "GETXATTR", get_xattr},
    {FUSE_LISTXATTR, "LISTXATTR", get_xattr},
    {FUSE_REMOVEXATTR, "REMOVEXATTR", remove_xattr},
    {FUSE_FLUSH, "FLUSH", flush},
    {FUSE_OPENDIR, "OPENDIR", plain<op::OpenDirectory>},
    {FUSE_READDIR, "READDIR", read_directory},
    {FUSE_RELEASEDIR, "RELEASEDIR", release},
    {FUSE_FSYNCDIR, "FSYNCDIR", fsync},
    {FUSE_CREATE, "CREATE", create},
    {kOpTmpFile, "TMPFILE", create_unnamed},
    {FUSE_IOCTL, "IOCTL", ioctl},
    {FUSE_GETLK, "GETLK", lock},
    {FUSE_SETLK, "SETLK", lock},
    {FUSE_SETLKW, "SETLKW", lock},
    {FUSE_INTERRUPT, "INTERRUPT", numbered<op::Interrupt, fuse_interrupt_in>},
    {FUSE_DESTROY, "DESTROY", plain<op::Destroy>},
    {FUSE_BATCH_FORGET, "BATCH_FORGET", batch_forget},
    {FUSE_FALLOCATE, "FALLOCATE", fallocate},
    {FUSE_READDIRPLUS, "READDIRPLUS", read_directory},
    {FUSE_RENAME2, "RENAME2", rename},
    {FUSE_LSEEK, "LSEEK", seek},
    {FUSE_COPY_FILE_RANGE, "COPY_FILE_RANGE", copy_range},
    {kOpCopyFileRange64, "COPY_FILE_RANGE_64", copy_range},
};

const Row* row_of(std::uint32_t opcode) {
  const auto found = std::find_if(std::begin(kRows), std::end(kRows),
                                  [&](const Row& r) { return r.opcode == opcode; });
  return found == std::end(kRows) ? nullptr : found;
}

}  // namespace

Result<Request> decode_header(ByteSpan bytes) {
  if (bytes.size() < sizeof(InHeader))
    return Status(Errc::protocol, "a FUSE request shorter than its header");
  const auto header = load_little<InHeader>(bytes.data());
  const std::uint64_t extensions = std::uint64_t{header.total_extlen} * 8;
  if (header.len != bytes.size() || sizeof(InHeader) + extensions > header.len) {
    return Status(Errc::protocol, "a FUSE request whose length is not what was read");
  }
  Request request;
  request.opcode = header.opcode;
  request.unique = header.unique;
  request.node = Node::unpack(header.nodeid);
  request.caller = {header.uid, header.gid, header.pid, 0, header.unique & ~kUniqueResend};
  request.body = bytes.subspan(sizeof(InHeader), header.len - sizeof(InHeader) - extensions);
  return request;
}

Result<Operation> decode_operation(Request& request) {
  const Row* row = row_of(request.opcode);
  if (row == nullptr) return Status(Errc::not_implemented, "a FUSE operation that is not served");
  return row->decode(request, Reader(request.body));
}

std::string_view name_of_opcode(std::uint32_t opcode) {
  const Row* row = row_of(opcode);
  return row == nullptr ? "unknown" : row->name;
}

}  // namespace starlane::fuse
