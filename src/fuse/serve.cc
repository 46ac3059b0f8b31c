#include "fuse/serve.h"

#include <fcntl.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <variant>
#include <vector>

#include "client/open_flags.h"
#include "common/clock.h"
#include "common/log.h"
#include "fuse/file_flags.h"

namespace starlane::fuse {
namespace {

constexpr std::size_t kMaxListing = 1 << 20;

// Entries in the kernel's form, up to the room it gave.
class ListingBuffer final : public client::DirectoryFiller {
 public:
  ListingBuffer(std::size_t room, bool with_attributes)
      : room_(room), with_attributes_(with_attributes) {
    bytes_.reserve(room < 32768 ? room : 32768);
  }

  bool add(std::string_view name, std::uint64_t ino, std::uint32_t type, std::uint64_t next_cookie,
           const client::EntryReply* entry) override {
    const std::size_t prefix = with_attributes_ ? sizeof(fuse_entry_out) : 0;
    const std::size_t size = prefix + FUSE_REC_ALIGN(sizeof(fuse_dirent) + name.size());
    if (bytes_.size() + size > room_) return false;
    const std::size_t at = bytes_.size();
    bytes_.resize(at + size);
    if (with_attributes_ && entry != nullptr)
      store_little(bytes_.data() + at, entry_answer(*entry));
    fuse_dirent header{};
    header.ino = ino;
    header.off = next_cookie;
    header.namelen = static_cast<std::uint32_t>(name.size());
    header.type = type;
    std::memcpy(bytes_.data() + at + prefix, &header, sizeof header);
    std::memcpy(bytes_.data() + at + prefix + sizeof header, name.data(), name.size());
    return true;
  }
  ByteSpan bytes() const { return bytes_; }

 private:
  const std::size_t room_;
  const bool with_attributes_;
  std::vector<std::byte> bytes_;
};

// Failures that no caller can see the cause of are said here, at most ten a second.
void log_failure(const Request& request, const Status& status) {
  if (errno_for_kernel(status.code()) != EIO) return;
  static std::atomic<std::int64_t> second{0};  // pairs with itself: a rough limit is enough
  static std::atomic<int> in_second{0};
  const std::int64_t now = system_clock().wall().seconds;
  if (second.exchange(now, std::memory_order_relaxed) != now)
    in_second.store(0, std::memory_order_relaxed);
  if (in_second.fetch_add(1, std::memory_order_relaxed) >= 10) return;
  SL_LOG(warn, "event=request_failed operation={} node={:x} pid={} error=\"{}\"",
         name_of_opcode(request.opcode), request.node.pack(), request.caller.pid,
         status.to_string());
}

fuse_lk_out lock_answer(const client::FileLock& lock) {
  fuse_lk_out out{};
  out.lk.start = lock.start;
  out.lk.end = lock.end;
  out.lk.type = lock.type == client::LockType::read    ? F_RDLCK
                : lock.type == client::LockType::write ? F_WRLCK
                                                       : F_UNLCK;
  out.lk.pid = lock.pid;
  return out;
}

}  // namespace

struct Visitor {
  Server& server;
  const Request& request;
  Reply& reply;
  client::Vfs& vfs = server.vfs_;
  const client::Caller& caller = request.caller;

  bool fail(const Status& status) {
    log_failure(request, status);
    return reply.status(status);
  }
  void answer(const Status& status) { status.ok() ? reply.ok() : fail(status); }

  void answer_entry(const Result<client::EntryReply>& entry) {
    if (entry.ok() && !entry.value().node.inode) reply.note_absence();
    if (!entry.ok()) {
      fail(entry.status());
    } else if (!reply.plain(entry_answer(entry.value())) && entry.value().node.inode) {
      vfs.forget(entry.value().node, 1);  // the kernel did not take it
    }
  }
  void answer_attributes(const Result<client::AttributesReply>& attributes) {
    attributes.ok() ? reply.plain(attributes_answer(attributes.value()))
                    : fail(attributes.status());
  }

  void operator()(const op::Lookup& o) { answer_entry(vfs.lookup(caller, request.node, o.name)); }
  void operator()(const op::Forget& o) { vfs.forget(request.node, o.lookups); }
  void operator()(const op::BatchForget& o) {
    for (std::size_t i = 0; i < o.size(); ++i) {
      const fuse_forget_one one = o.at(i);
      vfs.forget(client::Node::unpack(one.nodeid), one.nlookup);
    }
  }
  void operator()(const op::GetAttributes& o) {
    answer_attributes(vfs.get_attributes(caller, request.node, o.handle));
  }
  void operator()(const op::SetAttributes& o) {
    answer_attributes(vfs.set_attributes(caller, request.node, o.change));
  }
  void operator()(const op::ReadLink&) {
    const auto target = vfs.read_link(caller, request.node);
    target.ok() ? reply.text(target.value()) : fail(target.status());
  }

  void operator()(const op::MakeSymlink& o) {
    answer_entry(vfs.make_symlink(caller, request.node, o.name, o.target));
  }
  void operator()(const op::MakeNode& o) {
    answer_entry(vfs.make_node(caller, request.node, o.name, o.mode, o.rdev));
  }
  void operator()(const op::MakeDirectory& o) {
    answer_entry(vfs.make_directory(caller, request.node, o.name, o.mode));
  }
  void operator()(const op::Link& o) {
    answer_entry(vfs.link(caller, o.node, request.node, o.name));
  }
  void operator()(const op::Unlink& o) { answer(vfs.unlink(caller, request.node, o.name)); }
  void operator()(const op::RemoveDirectory& o) {
    answer(vfs.remove_directory(caller, request.node, o.name));
  }
  void operator()(const op::Rename& o) {
    answer(vfs.rename(caller, request.node, o.name, o.new_parent, o.new_name, o.flags));
  }

  // How the kernel is to treat the open file; counts a passthrough open.
  Result<OpenOut> open_answer(const client::OpenReply& open, client::Node node,
                              std::uint32_t flags) {
    OpenOut out{};
    out.fh = open.handle;
    if (open.unflushed) out.open_flags |= kOpenNoFlush;
    switch (open.mode) {
      case client::OpenMode::direct:
        out.open_flags |= FOPEN_DIRECT_IO | kOpenParallelDirectWrites;
        break;
      case client::OpenMode::cached:
        if (open.keep_cache) out.open_flags |= FOPEN_KEEP_CACHE;
        break;
      case client::OpenMode::passthrough:
        if (!server.options_.passthrough || client::writes(flags)) {
          return Status(Errc::io, "passthrough for an open that cannot have it");
        }
        pass_through(out, node, open);
    }
    return out;
  }
  // A refusal leaves the open to the page cache: the Vfs serves reads of any handle.
  void pass_through(OpenOut& out, client::Node node, const client::OpenReply& open) {
    const auto number = server.backing_.acquire(node.pack(), open.handle, open.backing_fd);
    if (number.ok()) {
      out.open_flags |= kOpenPassthrough;
      out.backing_id = number.value();
    } else {
      SL_LOG(warn, "event=passthrough_refused node={:x} error=\"{}\"", node.pack(),
             number.status().to_string());
    }
  }
  void close(std::uint64_t handle) {
    server.backing_.release(handle);
    vfs.release(caller, handle);
  }
  // With O_TRUNC by somebody who may not keep the bits.
  Status kill_privileges(client::Node node, std::uint64_t handle) {
    client::SetStat change;
    change.kill_privileges = true;
    change.handle = handle;
    return vfs.set_attributes(caller, node, change).status();
  }

  // An earlier daemon had served this very request, and died before the kernel heard of it.
  void reclaim() {
    if ((request.unique & kUniqueResend) == 0) return;
    if (const std::uint64_t left = vfs.left_by(caller.unique)) close(left);
  }

  void operator()(const op::Open& o) {
    reclaim();
    auto open = vfs.open(caller, request.node, o.flags);
    // Without O_LARGEFILE it is the kernel's own, for chattr, which does not look the name up
    // again.
    if (open.code() == Errc::stale_handle && o.flags == O_RDONLY)
      open = vfs.open(caller, request.node, o.flags);
    if (!open.ok()) return static_cast<void>(fail(open.status()));
    Status killed =
        o.kill_privileges ? kill_privileges(request.node, open.value().handle) : Status();
    const auto out =
        killed.ok() ? open_answer(open.value(), request.node, o.flags) : Result<OpenOut>(killed);
    if (!out.ok()) fail(out.status());
    if (!out.ok() || !reply.plain(out.value())) close(open.value().handle);
  }
  void operator()(const op::Create& o) {
    reclaim();
    const auto created = vfs.create(caller, request.node, o.name, o.mode, o.flags);
    if (!created.ok()) return static_cast<void>(fail(created.status()));
    const std::uint64_t handle = created.value().open.handle;
    answer_created(
        created.value(), o.flags,
        o.kill_privileges ? kill_privileges(created.value().entry.node, handle) : Status());
  }
  void operator()(const op::CreateUnnamed& o) {
    const auto created = vfs.create_unnamed(caller, request.node, o.mode, o.flags);
    reclaim();  // only now: closed in between, a file without a name is gone
    if (!created.ok()) return static_cast<void>(fail(created.status()));
    answer_created(created.value(), o.flags, {});
  }
  void answer_created(const client::Vfs::Created& created, std::uint32_t flags,
                      const Status& killed) {
    const client::EntryReply& entry = created.entry;
    const auto out =
        killed.ok() ? open_answer(created.open, entry.node, flags) : Result<OpenOut>(killed);
    bool taken = false;
    if (out.ok()) {
      struct {
        fuse_entry_out entry;
        OpenOut open;
      } both{entry_answer(entry), out.value()};
      static_assert(sizeof both == sizeof(fuse_entry_out) + sizeof(OpenOut));
      taken = reply.plain(both);
    } else {
      fail(out.status());
    }
    if (taken) return;
    close(created.open.handle);
    vfs.forget(entry.node, 1);
  }
  void operator()(const op::Release& o) {
    close(o.handle);
    reply.ok();
  }

  void operator()(const op::Read& o) {
    const auto pieces = vfs.read(caller, o.handle, o.offset, o.length);
    pieces.ok() ? reply.pieces(pieces.value()) : fail(pieces.status());
  }
  void operator()(const op::Write& o) {
    const auto written = vfs.write(caller, o.handle, o.offset, o.bytes, o.options);
    if (written.ok())
      reply.plain(fuse_write_out{written.value(), 0});
    else
      fail(written.status());
    if (o.options.append) vfs.answered(caller.unique);
  }
  void operator()(const op::Flush& o) { answer(vfs.flush(caller, o.handle, o.owner)); }
  void operator()(const op::Fsync& o) { answer(vfs.fsync(caller, o.handle, o.data_only)); }
  void operator()(const op::Fallocate& o) {
    answer(vfs.fallocate(caller, o.handle, o.mode, o.offset, o.length));
  }
  void operator()(const op::CopyRange& o) {
    const auto copied = vfs.copy_range(caller, o.range);
    if (!copied.ok()) return static_cast<void>(fail(copied.status()));
    o.wide_answer ? reply.plain(CopyFileRangeOut{copied.value()})
                  : reply.plain(fuse_write_out{static_cast<std::uint32_t>(copied.value()), 0});
  }
  void operator()(const op::Seek& o) {
    const auto found = vfs.seek(caller, o.handle, o.offset, o.whence);
    found.ok() ? reply.plain(fuse_lseek_out{found.value()}) : fail(found.status());
  }

  void operator()(const op::TestLock& o) {
    const auto found = vfs.test_lock(caller, request.node, o.request);
    found.ok() ? static_cast<void>(reply.plain(lock_answer(found.value())))
               : static_cast<void>(fail(found.status()));
  }
  void operator()(const op::SetLock& o) {
    const Status set = vfs.set_lock(caller, request.node, o.request);
    set.ok() ? reply.ok() : reply.status(set);  // a refusal is no event
  }

  void operator()(const op::OpenDirectory&) {
    const auto handle = vfs.open_directory(caller, request.node);
    if (!handle.ok()) return static_cast<void>(fail(handle.status()));
    if (!reply.plain(OpenOut{handle.value(), 0, 0})) vfs.release_directory(handle.value());
  }
  void operator()(const op::ReadDirectory& o) {
    ListingBuffer buffer(o.length < kMaxListing ? o.length : kMaxListing, o.with_attributes);
    const Status status = vfs.read_directory(caller, o.handle, o.cookie, o.with_attributes, buffer);
    status.ok() ? reply.bytes(buffer.bytes()) : fail(status);
  }
  void operator()(const op::FsyncDirectory& o) { answer(vfs.fsync_directory(caller, o.handle)); }
  void operator()(const op::ReleaseDirectory& o) {
    vfs.release_directory(o.handle);
    reply.ok();
  }

  // No room: the kernel asks how long the value is.
  void answer_sized(std::string_view value, std::uint32_t room) {
    if (room == 0) {
      reply.plain(fuse_getxattr_out{static_cast<std::uint32_t>(value.size()), 0});
    } else if (value.size() > room) {
      reply.error(ERANGE);
    } else {
      reply.text(value);
    }
  }
  void operator()(const op::GetXattr& o) {
    const auto value = vfs.get_xattr(caller, request.node, o.name);
    value.ok() ? answer_sized(value.value(), o.room) : static_cast<void>(fail(value.status()));
  }
  void operator()(const op::ListXattrs& o) {
    const auto names = vfs.list_xattrs(caller, request.node);
    if (!names.ok()) return static_cast<void>(fail(names.status()));
    std::string joined;
    for (const std::string& name : names.value()) joined.append(name).push_back('\0');
    answer_sized(joined, o.room);
  }
  void operator()(const op::SetXattr& o) {
    answer(vfs.set_xattr(caller, request.node, o.name, o.value, o.options));
  }
  void operator()(const op::RemoveXattr& o) {
    answer(vfs.remove_xattr(caller, request.node, o.name));
  }

  // Terminals and the like ask every file for what it is not: ENOTTY.
  void operator()(const op::Ioctl& o) {
    const auto call = server.options_.flags ? flags_call_of(o.command) : std::nullopt;
    if (!call) return static_cast<void>(reply.error(ENOTTY));
    *call == FlagsCall::get ? get_flags(o) : set_flags(o);
  }
  void get_flags(const op::Ioctl& o) {
    const auto flags = vfs.get_flags(caller, request.node);
    if (!flags.ok()) return static_cast<void>(fail(flags.status()));
    const FlagsAnswer answer = flags_answer(o.command, flags.value());
    if (answer.size > o.room) return static_cast<void>(reply.error(EINVAL));
    std::vector<std::byte> bytes(sizeof(fuse_ioctl_out) + answer.size);  // which begins with zeros
    std::memcpy(bytes.data() + sizeof(fuse_ioctl_out), answer.bytes.data(), answer.size);
    reply.bytes(bytes);
  }
  void set_flags(const op::Ioctl& o) {
    const auto flags = flags_asked(o.command, o.in);
    if (!flags.ok()) return static_cast<void>(fail(flags.status()));
    const Status set = vfs.set_flags(caller, request.node, flags.value());
    set.ok() ? reply.plain(fuse_ioctl_out{}) : fail(set);
  }

  void operator()(const op::StatFs&) {
    const auto found = vfs.stat_fs(caller, request.node);
    if (!found.ok()) return static_cast<void>(fail(found.status()));
    const client::StatFs& figures = found.value();
    fuse_statfs_out out{};
    out.st.blocks = figures.blocks;
    out.st.bfree = figures.blocks_free;
    out.st.bavail = figures.blocks_available;
    out.st.files = figures.files;
    out.st.ffree = figures.files_free;
    out.st.bsize = out.st.frsize = figures.block_size;
    out.st.namelen = kMaxName;
    reply.plain(out);
  }
  void operator()(const op::Interrupt&) {}
  void operator()(const op::Destroy&) { reply.ok(); }
};

void Server::serve(Request& request, Reply& reply) {
  const auto operation = decode_operation(request);
  if (!operation.ok()) {
    reply.error(operation.code() == Errc::not_implemented ? ENOSYS
                                                          : errno_for_kernel(operation.code()));
    return;
  }
  std::visit(Visitor{*this, request, reply}, operation.value());
}

void Server::serve_waiting(Request& request, std::shared_ptr<Reply> reply,
                           std::function<void()> answered) {
  const auto operation = decode_operation(request);
  const auto* lock = operation.ok() ? std::get_if<op::SetLock>(&operation.value()) : nullptr;
  if (lock == nullptr) {
    reply->status(operation.ok() ? Status(Errc::invalid, "does not wait") : operation.status());
    return answered();
  }
  vfs_.await_lock(request.caller, request.node, lock->request,
                  [reply = std::move(reply), answered = std::move(answered)](const Status& status) {
                    status.ok() ? reply->ok() : reply->status(status);
                    answered();
                  });
}

}  // namespace starlane::fuse
