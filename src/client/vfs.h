// What a front end (the kernel's FUSE mount; a memory server in bench/) asks of a file system:
// POSIX by node and handle. Any thread; every call may block until done, none holds a lock over
// I/O. A passing reason (a server away) is waited for, never an error: the front end may call
// `interrupt` for a request whose application was signalled.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/bytes.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/status.h"

namespace starlane::client {

/// The kernel's nodeid: which view of this host, which incarnation of the file's kernel inode,
/// which inode. Pack is stateless but for the slot table. Slot 0 is the mount's own synthetic tree
/// (root, public, volumes, public/NAME).
struct Node {
  std::uint16_t slot = 0;
  std::uint8_t incarnation = 0;
  InodeId inode;

  std::uint64_t pack() const {
    return std::uint64_t{slot} << 48 | std::uint64_t{incarnation} << 40 | inode.value;
  }
  static Node unpack(std::uint64_t id) {
    return {static_cast<std::uint16_t>(id >> 48), static_cast<std::uint8_t>(id >> 40),
            InodeId(id & (kInodeLimit - 1))};
  }
  friend auto operator<=>(const Node&, const Node&) = default;
};
inline constexpr Node kMountRoot{0, 0, kRootInode};

/// Of the application behind a request. umask: of what is created, not applied yet, for a default
/// access list of the directory takes its place. unique: the kernel's number of the request without
/// the resend bit.
struct Caller {
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t pid = 0;
  std::uint32_t umask = 0;
  std::uint64_t unique = 0;
};

struct Stat {
  std::uint64_t ino = 0;  // st_ino: view << 40 | inode
  std::uint32_t mode = 0;
  std::uint32_t nlink = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t rdev = 0;
  std::uint64_t length = 0;
  std::uint64_t blocks = 0;  // of 512 bytes
  WallTime atime, mtime, ctime;
};

struct AttributesReply {
  Stat stat;
  Nanoseconds valid{0};  // how long the kernel may believe them
};

struct EntryReply {
  Node node;  // inode 0: there is no such name, and the kernel may remember that for entry_valid
  std::uint64_t generation = 0;
  Nanoseconds entry_valid{0};
  AttributesReply attributes;
};

struct SetStat {
  std::optional<std::uint32_t> mode, uid, gid;
  std::optional<std::uint64_t> length;
  std::optional<WallTime> atime, mtime, ctime;
  bool atime_now = false, mtime_now = false;
  bool kill_privileges = false;
  std::optional<std::uint64_t> handle;
};

enum class OpenMode : std::uint8_t { cached, direct, passthrough };

struct OpenReply {
  std::uint64_t handle = 0;
  OpenMode mode = OpenMode::cached;
  bool keep_cache = false;  // pages of earlier opens are still right; never with passthrough
  bool unflushed = false;   // a close has nothing to tell: no write, and no lock of a process
  int backing_fd = -1;      // passthrough: open as long as any handle of this node is
};

/// Bytes of a read where they lie, kept alive by `hold`. Together they may be less than asked at
/// the end of file only.
struct Piece {
  ByteSpan bytes;
  std::shared_ptr<const void> hold;
};

struct WriteOptions {
  bool synchronous = false;  // O_SYNC or O_DSYNC: durable before the answer
  bool append = false;       // O_APPEND: the server says where, when several hosts may write
  bool kill_privileges = false;
  bool from_page_cache = false;  // a dirty shared mapping; the writer is not known
};

enum class LockKind : std::uint8_t { record, flock };  // they never meet
enum class LockType : std::uint8_t { read, write, unlock };
/// An advisory lock. end is included; 2^63 - 1: to the end, however far that moves.
struct FileLock {
  LockKind kind = LockKind::record;
  LockType type = LockType::unlock;
  std::uint64_t start = 0, end = 0;
  std::uint32_t pid = 0;
};
struct LockRequest {
  std::uint64_t handle = 0;
  std::uint64_t owner = 0;  // the kernel's number of a process, or of an open file description
  FileLock lock;
};

struct StatFs {
  std::uint64_t blocks = 0, blocks_free = 0;
  std::uint64_t blocks_available = 0;  // of the free ones, where there is less room than allowed
  std::uint64_t files = 0, files_free = 0;
  std::uint32_t block_size = 4096;
};

/// Flags of a file or directory (chattr).
inline constexpr std::uint32_t kImmutable = 1;
inline constexpr std::uint32_t kAppendOnly = 2;

struct CopyRange {
  std::uint64_t source_handle = 0, source_offset = 0;
  std::uint64_t handle = 0, offset = 0;
  std::uint64_t length = 0;
};

/// Takes directory entries until it is full.
class DirectoryFiller {
 public:
  virtual ~DirectoryFiller() = default;
  /// False: it did not fit and was not taken. next_cookie: resumes after this entry. type: mode
  /// bits >> 12. entry: with attributes (readdirplus), counts as a lookup of the node unless its
  /// inode is 0; null: plain.
  virtual bool add(std::string_view name, std::uint64_t ino, std::uint32_t type,
                   std::uint64_t next_cookie, const EntryReply* entry) = 0;
};

/// What a file system asks of the kernel; implemented by the front end. Never called with a lock
/// held, nor from the handler of a read of the same pages.
class KernelNotifier {
 public:
  virtual ~KernelNotifier() = default;
  /// Drops attributes, and pages of [offset, offset + length); length 0: to the end; offset -1:
  /// attributes only.
  virtual void invalidate_inode(Node node, std::int64_t offset, std::int64_t length) = 0;
  virtual void invalidate_entry(Node parent, std::string_view name) = 0;
  /// Pushes pages into the page cache. Only for nodes without a writer.
  virtual Status store(Node node, std::uint64_t offset, ByteSpan bytes) = 0;
};

struct KernelFeatures {
  bool passthrough = false;
  std::uint32_t max_write = 1 << 20;
};

class Vfs {
 public:
  virtual ~Vfs() = default;

  /// Before the first request; the notifier outlives all calls until `stop`.
  virtual void start(KernelNotifier* notifier, const KernelFeatures& features) = 0;
  /// Flushes everything (accepted and committed) and gives up leases. No request comes after.
  virtual Status stop() = 0;
  /// The application behind `unique` was signalled: a wait may end with `interrupted`.
  virtual void interrupt(std::uint64_t unique) = 0;

  // Where an earlier daemon of the mount died: the kernel sends again what it had not answered.
  /// The handle that it had made for this very open or create, of which nobody was told: to be
  /// released. 0: none.
  virtual std::uint64_t left_by(std::uint64_t /*unique*/) { return 0; }
  /// The kernel has the answer to this write: it will not be sent again.
  virtual void answered(std::uint64_t /*unique*/) {}

  virtual Result<EntryReply> lookup(const Caller&, Node parent, std::string_view name) = 0;
  virtual void forget(Node node, std::uint64_t lookups) = 0;
  virtual Result<AttributesReply> get_attributes(const Caller&, Node node,
                                                 std::optional<std::uint64_t> handle) = 0;
  virtual Result<AttributesReply> set_attributes(const Caller&, Node node,
                                                 const SetStat& change) = 0;
  virtual Result<std::string> read_link(const Caller&, Node node) = 0;

  virtual Result<EntryReply> make_node(const Caller&, Node parent, std::string_view name,
                                       std::uint32_t mode, std::uint32_t rdev) = 0;
  virtual Result<EntryReply> make_directory(const Caller&, Node parent, std::string_view name,
                                            std::uint32_t mode) = 0;
  virtual Result<EntryReply> make_symlink(const Caller&, Node parent, std::string_view name,
                                          std::string_view target) = 0;
  virtual Result<EntryReply> link(const Caller&, Node node, Node parent, std::string_view name) = 0;
  virtual Status unlink(const Caller&, Node parent, std::string_view name) = 0;
  virtual Status remove_directory(const Caller&, Node parent, std::string_view name) = 0;
  virtual Status rename(const Caller&, Node parent, std::string_view name, Node new_parent,
                        std::string_view new_name, std::uint32_t flags) = 0;

  /// stale_handle: look the name up again, once; the open after that is always served. flags: as
  /// open(2).
  virtual Result<OpenReply> open(const Caller&, Node node, std::uint32_t flags) = 0;
  struct Created {
    EntryReply entry;
    OpenReply open;
  };
  virtual Result<Created> create(const Caller&, Node parent, std::string_view name,
                                 std::uint32_t mode, std::uint32_t flags) = 0;
  /// O_TMPFILE: a file without a name, in the volume of `directory`; gone with its last handle
  /// unless `link` gives it one, which O_EXCL in flags rules out.
  virtual Result<Created> create_unnamed(const Caller&, Node /*directory*/, std::uint32_t /*mode*/,
                                         std::uint32_t /*flags*/) {
    return Status(Errc::unsupported, "no files without a name");
  }
  virtual Result<std::vector<Piece>> read(const Caller&, std::uint64_t handle, std::uint64_t offset,
                                          std::uint32_t length) = 0;
  /// Straight into the caller's memory, past what is cached: how much; less than `out` at the end
  /// of file only. For front ends in the application's own process.
  virtual Result<std::uint64_t> read_into(const Caller&, std::uint64_t /*handle*/,
                                          std::uint64_t /*offset*/, MutableByteSpan /*out*/) {
    return Status(Errc::unsupported, "no reads into memory of one's own");
  }
  /// All of it, or an error. The bytes are the caller's again when it returns.
  virtual Result<std::uint32_t> write(const Caller&, std::uint64_t handle, std::uint64_t offset,
                                      ByteSpan bytes, const WriteOptions& options) = 0;
  /// At each close: what was written is accepted and committed, or the failure is told; then the
  /// record locks that the owner has on the file end.
  virtual Status flush(const Caller&, std::uint64_t handle, std::uint64_t owner) = 0;
  virtual Status fsync(const Caller&, std::uint64_t handle, bool data_only) = 0;
  /// With what is locked through the handle.
  virtual void release(const Caller&, std::uint64_t handle) = 0;
  virtual Status fallocate(const Caller&, std::uint64_t handle, std::uint32_t mode,
                           std::uint64_t offset, std::uint64_t length) = 0;
  virtual Result<std::uint64_t> copy_range(const Caller&, const CopyRange& range) = 0;
  virtual Result<std::uint64_t> seek(const Caller&, std::uint64_t handle, std::uint64_t offset,
                                     int whence) = 0;

  /// What stands in the way of the lock; of type unlock: nothing.
  virtual Result<FileLock> test_lock(const Caller&, Node node, const LockRequest& request) = 0;
  /// would_block: another has it.
  virtual Status set_lock(const Caller&, Node node, const LockRequest& request) = 0;
  /// Waits for it without a thread: `done` is called once, before this returns or later, by any
  /// thread, but not after `stop`. deadlock: it would wait for ever; interrupted.
  using LockDone = std::function<void(const Status&)>;
  virtual void await_lock(const Caller&, Node node, const LockRequest& request, LockDone done) = 0;

  virtual Result<std::uint64_t> open_directory(const Caller&, Node node) = 0;
  virtual Status read_directory(const Caller&, std::uint64_t handle, std::uint64_t cookie,
                                bool with_attributes, DirectoryFiller& filler) = 0;
  virtual Status fsync_directory(const Caller&, std::uint64_t handle) = 0;
  virtual void release_directory(std::uint64_t handle) = 0;

  virtual Result<std::string> get_xattr(const Caller&, Node node, std::string_view name) = 0;
  virtual Result<std::vector<std::string>> list_xattrs(const Caller&, Node node) = 0;
  struct SetXattr {
    std::uint32_t flags = 0;   // XATTR_CREATE, XATTR_REPLACE
    bool kill_setgid = false;  // with an access list: by somebody outside the file's group
  };
  virtual Status set_xattr(const Caller&, Node node, std::string_view name, std::string_view value,
                           const SetXattr& options) = 0;
  virtual Status remove_xattr(const Caller&, Node node, std::string_view name) = 0;

  virtual Result<std::uint32_t> get_flags(const Caller&, Node) { return 0U; }
  /// Of a caller that may (CAP_LINUX_IMMUTABLE): the front end has seen to it.
  virtual Status set_flags(const Caller&, Node, std::uint32_t /*flags*/) {
    return Status(Errc::unsupported, "no flags");
  }

  virtual Result<StatFs> stat_fs(const Caller&, Node node) = 0;

  /// By which path the kernel last found it, from the root of the mount, without a call to anybody:
  /// for logs. Empty: not known.
  virtual std::string path_of(Node) { return {}; }
};

}  // namespace starlane::client
