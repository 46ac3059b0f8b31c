#include "fuse/memory_vfs.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace starlane::fuse {

using client::AttributesReply;
using client::Caller;
using client::EntryReply;
using client::Node;
using client::Piece;

namespace {

constexpr std::uint64_t kUnit = 128_KiB;
constexpr std::uint64_t kMaxFile = std::uint64_t{1} << 46;

struct Unit {
  std::byte bytes[kUnit];
};
const std::shared_ptr<const Unit>& zero_unit() {
  static const std::shared_ptr<const Unit> zeros = std::make_shared<Unit>();
  return zeros;
}

WallTime now() { return system_clock().wall(); }

}  // namespace

struct MemoryVfs::Inode {
  std::uint64_t number = 0;
  // Under the tree's lock.
  std::map<std::string, InodePointer, std::less<>> children;
  std::uint64_t parent = 0;  // of a directory
  std::uint64_t lookups = 0;
  std::uint64_t handles = 0;
  OpenPolicy policy;

  mutable std::shared_mutex m;  // what follows
  client::Stat stat;
  std::string target;
  std::map<std::string, std::string, std::less<>> xattrs;
  std::vector<std::shared_ptr<Unit>> units;  // null: zeros
  ByteSpan fixed;                            // of add_file, instead of units
  std::shared_ptr<const void> fixed_hold;

  bool is_directory() const { return S_ISDIR(stat.mode); }

  void resize(std::uint64_t length) {
    if (length < stat.length && length % kUnit != 0 && length / kUnit < units.size() &&
        units[length / kUnit]) {
      const std::uint64_t from =
          length % kUnit;  // what lies beyond must be zeros if the file grows again
      std::memset(units[length / kUnit]->bytes + from, 0, kUnit - from);
    }
    units.resize(divide_up(length, kUnit));
    stat.length = length;
    stat.mtime = stat.ctime = now();
  }

  void put(std::uint64_t offset, ByteSpan bytes) {
    if (offset + bytes.size() > stat.length) resize(offset + bytes.size());
    while (!bytes.empty()) {
      std::shared_ptr<Unit>& unit = units[offset / kUnit];
      const std::uint64_t at = offset % kUnit;
      const std::uint64_t n = std::min<std::uint64_t>(bytes.size(), kUnit - at);
      if (!unit)
        unit = n == kUnit ? std::make_shared_for_overwrite<Unit>() : std::make_shared<Unit>();
      std::memcpy(unit->bytes + at, bytes.data(), n);
      bytes = bytes.subspan(n);
      offset += n;
    }
    stat.mtime = stat.ctime = now();
  }

  std::vector<Piece> get(std::uint64_t offset, std::uint64_t length) const {
    std::vector<Piece> pieces;
    if (offset >= stat.length) return pieces;
    length = std::min(length, stat.length - offset);
    if (!fixed.empty()) return {Piece{fixed.subspan(offset, length), fixed_hold}};
    while (length > 0) {
      const std::shared_ptr<const Unit> unit =
          units[offset / kUnit] ? units[offset / kUnit] : zero_unit();
      const std::uint64_t at = offset % kUnit;
      const std::uint64_t n = std::min(length, kUnit - at);
      pieces.push_back({{unit->bytes + at, n}, unit});
      offset += n;
      length -= n;
    }
    return pieces;
  }
};

struct MemoryVfs::Handle {
  InodePointer inode;
  Mutex m;
  // A listing is taken whole when it starts, as the cookie is a position in it.
  std::vector<std::pair<std::string, InodePointer>> listing SL_GUARDED_BY(m);
};

MemoryVfs::MemoryVfs(const Options& options) : options_(options) {
  auto root = std::make_shared<Inode>();
  root->number = root->parent = 1;
  root->lookups = 1;
  root->stat.ino = 1;
  root->stat.mode = S_IFDIR | 0777;
  root->stat.nlink = 2;
  root->stat.mtime = root->stat.ctime = root->stat.atime = now();
  inodes_[1] = root;
}

MemoryVfs::~MemoryVfs() = default;

Result<MemoryVfs::InodePointer> MemoryVfs::find(Node node) const {
  const auto found = inodes_.find(node.inode.value);
  if (found == inodes_.end()) return Status(Errc::stale_handle, "no such inode");
  return found->second;
}

Result<MemoryVfs::InodePointer> MemoryVfs::find_directory(Node node) const {
  InodePointer inode = SL_TRY(find(node));
  if (!inode->is_directory()) return Status(Errc::not_directory, "not a directory");
  return inode;
}

Result<MemoryVfs::InodePointer> MemoryVfs::child(Node parent, std::string_view name) const {
  const InodePointer directory = SL_TRY(find_directory(parent));
  const auto found = directory->children.find(name);
  if (found == directory->children.end()) return Status(Errc::not_found, "no such name");
  return found->second;
}

std::shared_ptr<MemoryVfs::Handle> MemoryVfs::handle_of(std::uint64_t handle) const {
  MutexLock lock(m_);
  const auto found = handles_.find(handle);
  return found == handles_.end() ? nullptr : found->second;
}

EntryReply MemoryVfs::describe(const InodePointer& inode) const {
  const std::shared_lock lock(inode->m);
  EntryReply reply;
  reply.node = {0, 0, InodeId(inode->number)};
  reply.entry_valid = reply.attributes.valid = options_.valid;
  reply.attributes.stat = inode->stat;
  reply.attributes.stat.blocks = divide_up(inode->stat.length, 512);
  return reply;
}

EntryReply MemoryVfs::entry(const InodePointer& inode) {
  ++inode->lookups;
  return describe(inode);
}

Result<MemoryVfs::InodePointer> MemoryVfs::make(const Caller& caller, Node parent,
                                                std::string_view name, std::uint32_t mode) {
  const InodePointer directory = SL_TRY(find_directory(parent));
  if (directory->children.contains(name)) return Status(Errc::exists, "the name exists");
  auto inode = std::make_shared<Inode>();
  inode->number = next_inode_++;
  inode->parent = directory->number;
  inode->stat.ino = inode->number;
  inode->stat.mode = mode & ~caller.umask;
  inode->stat.nlink = S_ISDIR(mode) ? 2 : 1;
  inode->stat.uid = caller.uid;
  inode->stat.gid = caller.gid;
  inode->stat.atime = inode->stat.mtime = inode->stat.ctime = now();
  const std::unique_lock lock(directory->m);
  if ((directory->stat.mode & S_ISGID) != 0) {
    inode->stat.gid = directory->stat.gid;
    if (S_ISDIR(mode)) inode->stat.mode |= S_ISGID;
  }
  if (S_ISDIR(mode)) ++directory->stat.nlink;
  directory->stat.mtime = directory->stat.ctime = inode->stat.mtime;
  directory->children.emplace(name, inode);
  inodes_[inode->number] = inode;
  return inode;
}

std::uint64_t MemoryVfs::add_handle(const InodePointer& inode) {
  auto handle = std::make_shared<Handle>();
  handle->inode = inode;
  ++inode->handles;
  handles_[next_handle_] = std::move(handle);
  return next_handle_++;
}

void MemoryVfs::drop_if_unused(const InodePointer& inode) {
  if (inode->lookups == 0 && inode->handles == 0 && inode->stat.nlink == 0)
    inodes_.erase(inode->number);
}

InodeId MemoryVfs::add_file(const std::string& name, ByteSpan bytes,
                            std::shared_ptr<const void> hold) {
  MutexLock lock(m_);
  const auto made = make({}, client::kMountRoot, name, S_IFREG | 0444);
  if (!made.ok()) return {};
  const std::unique_lock inode_lock(made.value()->m);
  made.value()->fixed = bytes;
  made.value()->fixed_hold = std::move(hold);
  made.value()->stat.length = bytes.size();
  return InodeId(made.value()->number);
}

void MemoryVfs::set_open_policy(InodeId inode, const OpenPolicy& policy) {
  MutexLock lock(m_);
  const auto found = inodes_.find(inode.value);
  if (found != inodes_.end()) found->second->policy = policy;
}

Result<EntryReply> MemoryVfs::lookup(const Caller&, Node parent, std::string_view name) {
  MutexLock lock(m_);
  return entry(SL_TRY(child(parent, name)));
}

void MemoryVfs::forget(Node node, std::uint64_t lookups) {
  MutexLock lock(m_);
  const auto found = find(node);
  if (!found.ok()) return;
  const InodePointer inode = found.value();
  inode->lookups -= std::min(inode->lookups, lookups);
  drop_if_unused(inode);
}

Result<AttributesReply> MemoryVfs::get_attributes(const Caller&, Node node,
                                                  std::optional<std::uint64_t>) {
  MutexLock lock(m_);
  return describe(SL_TRY(find(node))).attributes;
}

Result<AttributesReply> MemoryVfs::set_attributes(const Caller&, Node node,
                                                  const client::SetStat& change) {
  MutexLock lock(m_);
  const InodePointer inode = SL_TRY(find(node));
  {
    const std::unique_lock inode_lock(inode->m);
    client::Stat& stat = inode->stat;
    if (change.length && (*change.length > kMaxFile || !inode->fixed.empty())) {
      return Status(Errc::file_too_large, "too long a file");
    }
    if (change.mode) stat.mode = (stat.mode & S_IFMT) | (*change.mode & 07777);
    if (change.uid) stat.uid = *change.uid;
    if (change.gid) stat.gid = *change.gid;
    if (change.length) inode->resize(*change.length);
    if (change.atime) stat.atime = *change.atime;
    if (change.mtime) stat.mtime = *change.mtime;
    if (change.atime_now) stat.atime = now();
    if (change.mtime_now) stat.mtime = now();
    if (change.kill_privileges && S_ISREG(stat.mode)) {
      stat.mode &=
          ~static_cast<std::uint32_t>(S_ISUID | ((stat.mode & S_IXGRP) != 0 ? S_ISGID : 0));
    }
    stat.ctime = now();
  }
  return describe(inode).attributes;
}

Result<std::string> MemoryVfs::read_link(const Caller&, Node node) {
  MutexLock lock(m_);
  const InodePointer inode = SL_TRY(find(node));
  if (!S_ISLNK(inode->stat.mode)) return Status(Errc::invalid, "not a symbolic link");
  return inode->target;
}

Result<EntryReply> MemoryVfs::make_node(const Caller& caller, Node parent, std::string_view name,
                                        std::uint32_t mode, std::uint32_t rdev) {
  MutexLock lock(m_);
  const InodePointer inode = SL_TRY(make(caller, parent, name, mode));
  inode->stat.rdev = rdev;
  return entry(inode);
}

Result<EntryReply> MemoryVfs::make_directory(const Caller& caller, Node parent,
                                             std::string_view name, std::uint32_t mode) {
  MutexLock lock(m_);
  return entry(SL_TRY(make(caller, parent, name, S_IFDIR | (mode & 07777))));
}

Result<EntryReply> MemoryVfs::make_symlink(const Caller& caller, Node parent, std::string_view name,
                                           std::string_view target) {
  MutexLock lock(m_);
  const InodePointer inode = SL_TRY(make(caller, parent, name, S_IFLNK | 0777));
  inode->target = target;
  inode->stat.length = target.size();
  return entry(inode);
}

Result<EntryReply> MemoryVfs::link(const Caller&, Node node, Node parent, std::string_view name) {
  MutexLock lock(m_);
  const InodePointer inode = SL_TRY(find(node));
  const InodePointer directory = SL_TRY(find_directory(parent));
  if (inode->is_directory()) return Status(Errc::not_permitted, "no hard links to directories");
  if (!directory->children.emplace(name, inode).second)
    return Status(Errc::exists, "the name exists");
  {
    const std::unique_lock inode_lock(inode->m);
    ++inode->stat.nlink;
    inode->stat.ctime = now();
  }
  return entry(inode);
}

Status MemoryVfs::unlink(const Caller&, Node parent, std::string_view name) {
  MutexLock lock(m_);
  const InodePointer inode = SL_TRY(child(parent, name));
  if (inode->is_directory()) return Status(Errc::is_directory, "a directory");
  SL_TRY(find(parent))->children.erase(std::string(name));
  {
    const std::unique_lock inode_lock(inode->m);
    --inode->stat.nlink;
    inode->stat.ctime = now();
  }
  drop_if_unused(inode);
  return {};
}

Status MemoryVfs::remove_directory(const Caller&, Node parent, std::string_view name) {
  MutexLock lock(m_);
  const InodePointer inode = SL_TRY(child(parent, name));
  if (!inode->is_directory()) return Status(Errc::not_directory, "not a directory");
  if (!inode->children.empty()) return Status(Errc::not_empty, "the directory is not empty");
  const InodePointer directory = SL_TRY(find(parent));
  directory->children.erase(std::string(name));
  {
    const std::unique_lock inode_lock(inode->m);
    inode->stat.nlink = 0;
  }
  const std::unique_lock directory_lock(directory->m);
  --directory->stat.nlink;
  drop_if_unused(inode);
  return {};
}

// What is at the new name goes, if it may.
Status MemoryVfs::replace_target(const InodePointer& moved, const InodePointer& parent,
                                 std::string_view name) {
  const auto found = parent->children.find(name);
  if (found == parent->children.end()) return {};
  const InodePointer old = found->second;
  if (old->is_directory() && !moved->is_directory())
    return Status(Errc::is_directory, "a directory is in the way");
  if (!old->is_directory() && moved->is_directory())
    return Status(Errc::not_directory, "a file is in the way");
  if (!old->children.empty())
    return Status(Errc::not_empty, "the directory in the way is not empty");
  parent->children.erase(found);
  {
    const std::unique_lock lock(old->m);
    old->stat.nlink -= old->is_directory() ? 2 : 1;
  }
  if (old->is_directory()) --parent->stat.nlink;
  drop_if_unused(old);
  return {};
}

Status MemoryVfs::rename(const Caller&, Node parent, std::string_view name, Node new_parent,
                         std::string_view new_name, std::uint32_t flags) {
  MutexLock lock(m_);
  const InodePointer from = SL_TRY(find_directory(parent));
  const InodePointer to = SL_TRY(find_directory(new_parent));
  const InodePointer moved = SL_TRY(child(parent, name));
  const auto target = child(new_parent, new_name);
  if ((flags & RENAME_EXCHANGE) != 0) {
    const InodePointer other = SL_TRY(target);
    from->children[std::string(name)] = other;
    to->children[std::string(new_name)] = moved;
    return {};
  }
  if (target.ok() && (flags & RENAME_NOREPLACE) != 0)
    return Status(Errc::exists, "the name exists");
  if (target.ok() && target.value() == moved) return {};
  SL_TRY(replace_target(moved, to, new_name));
  from->children.erase(std::string(name));
  to->children.emplace(new_name, moved);
  if (moved->is_directory() && from != to) {
    --from->stat.nlink;
    ++to->stat.nlink;
    moved->parent = to->number;
  }
  return {};
}

Result<client::OpenReply> MemoryVfs::open(const Caller&, Node node, std::uint32_t flags) {
  MutexLock lock(m_);
  const InodePointer inode = SL_TRY(find(node));
  if ((flags & O_TRUNC) != 0) {
    const std::unique_lock inode_lock(inode->m);
    inode->resize(0);
  }
  client::OpenReply reply;
  reply.handle = add_handle(inode);
  reply.mode = inode->policy.mode;
  reply.backing_fd = inode->policy.backing_fd;
  reply.keep_cache = options_.keep_cache && reply.mode == client::OpenMode::cached;
  reply.unflushed = (flags & O_ACCMODE) == O_RDONLY;
  return reply;
}

Result<client::Vfs::Created> MemoryVfs::create(const Caller& caller, Node parent,
                                               std::string_view name, std::uint32_t mode,
                                               std::uint32_t flags) {
  MutexLock lock(m_);
  auto found = child(parent, name);
  if (found.ok() && (flags & O_EXCL) != 0) return Status(Errc::exists, "the name exists");
  const InodePointer inode =
      found.ok() ? found.value() : SL_TRY(make(caller, parent, name, S_IFREG | (mode & 07777)));
  if ((flags & O_TRUNC) != 0) {
    const std::unique_lock inode_lock(inode->m);
    inode->resize(0);
  }
  Created created;
  created.entry = entry(inode);
  created.open.handle = add_handle(inode);
  created.open.keep_cache = options_.keep_cache;
  return created;
}

Result<std::vector<Piece>> MemoryVfs::read(const Caller&, std::uint64_t handle,
                                           std::uint64_t offset, std::uint32_t length) {
  const auto found = handle_of(handle);
  if (!found) return Status(Errc::bad_handle, "no such handle");
  const std::shared_lock lock(found->inode->m);
  return found->inode->get(offset, length);
}

Result<std::uint32_t> MemoryVfs::write(const Caller&, std::uint64_t handle, std::uint64_t offset,
                                       ByteSpan bytes, const client::WriteOptions& options) {
  const auto found = handle_of(handle);
  if (!found) return Status(Errc::bad_handle, "no such handle");
  Inode& inode = *found->inode;
  const std::unique_lock lock(inode.m);
  if (options.append) offset = inode.stat.length;
  if (offset + bytes.size() > kMaxFile) return Status(Errc::file_too_large, "too long a file");
  if (!inode.fixed.empty()) return Status(Errc::read_only, "the file is read-only");
  inode.put(offset, bytes);
  if (options.kill_privileges) {
    inode.stat.mode &=
        ~static_cast<std::uint32_t>(S_ISUID | ((inode.stat.mode & S_IXGRP) != 0 ? S_ISGID : 0));
  }
  return static_cast<std::uint32_t>(bytes.size());
}

void MemoryVfs::release(const client::Caller&, std::uint64_t handle) {
  MutexLock lock(m_);
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return;
  const InodePointer inode = found->second->inode;
  handles_.erase(found);
  --inode->handles;
  drop_if_unused(inode);
}

Status MemoryVfs::fallocate(const Caller&, std::uint64_t handle, std::uint32_t mode,
                            std::uint64_t offset, std::uint64_t length) {
  const auto found = handle_of(handle);
  if (!found) return Status(Errc::bad_handle, "no such handle");
  if ((mode & ~static_cast<std::uint32_t>(FALLOC_FL_KEEP_SIZE)) != 0) {
    return Status(Errc::unsupported, "only plain fallocate");
  }
  if (offset + length > kMaxFile) return Status(Errc::file_too_large, "too long a file");
  const std::unique_lock lock(found->inode->m);
  if (mode == 0 && offset + length > found->inode->stat.length)
    found->inode->resize(offset + length);
  return {};
}

Result<std::uint64_t> MemoryVfs::copy_range(const Caller&, const client::CopyRange& range) {
  const auto source = handle_of(range.source_handle);
  const auto target = handle_of(range.handle);
  if (!source || !target) return Status(Errc::bad_handle, "no such handle");
  std::vector<std::byte> copy;  // first, as both may be one file
  {
    const std::shared_lock lock(source->inode->m);
    for (const Piece& piece :
         source->inode->get(range.source_offset, std::min(range.length, 64_MiB))) {
      copy.insert(copy.end(), piece.bytes.begin(), piece.bytes.end());
    }
  }
  const std::unique_lock lock(target->inode->m);
  if (range.offset + copy.size() > kMaxFile) return Status(Errc::file_too_large, "too long a file");
  target->inode->put(range.offset, copy);
  return copy.size();
}

Result<std::uint64_t> MemoryVfs::seek(const Caller&, std::uint64_t handle, std::uint64_t offset,
                                      int whence) {
  const auto found = handle_of(handle);
  if (!found) return Status(Errc::bad_handle, "no such handle");
  const std::shared_lock lock(found->inode->m);
  const std::uint64_t length = found->inode->stat.length;
  if (offset >= length) return Status(Errc::no_device, "beyond the end");
  return whence == SEEK_DATA ? offset : length;
}

Result<std::uint64_t> MemoryVfs::open_directory(const Caller&, Node node) {
  MutexLock lock(m_);
  return add_handle(SL_TRY(find_directory(node)));
}

Status MemoryVfs::read_directory(const Caller&, std::uint64_t handle, std::uint64_t cookie,
                                 bool with_attributes, client::DirectoryFiller& filler) {
  const auto open = handle_of(handle);
  if (!open) return Status(Errc::bad_handle, "no such handle");
  MutexLock listing_lock(open->m);
  MutexLock lock(m_);
  if (cookie == 0) {
    open->listing = {{".", open->inode}, {"..", inodes_[open->inode->parent]}};
    for (const auto& [name, inode] : open->inode->children) open->listing.emplace_back(name, inode);
  }
  for (std::uint64_t i = cookie; i < open->listing.size(); ++i) {
    const auto& [name, inode] = open->listing[i];
    if (!inode) continue;
    EntryReply reply = describe(inode);
    if (i < 2) reply.node = {};  // not looked up
    if (!filler.add(name, inode->number, inode->stat.mode >> 12, i + 1,
                    with_attributes ? &reply : nullptr))
      break;
    if (with_attributes && i >= 2) ++inode->lookups;
  }
  return {};
}

Result<std::string> MemoryVfs::get_xattr(const Caller&, Node node, std::string_view name) {
  MutexLock lock(m_);
  const InodePointer inode = SL_TRY(find(node));
  const std::shared_lock inode_lock(inode->m);
  const auto found = inode->xattrs.find(name);
  if (found == inode->xattrs.end()) return Status(Errc::no_attribute, "no such attribute");
  return found->second;
}

Result<std::vector<std::string>> MemoryVfs::list_xattrs(const Caller&, Node node) {
  MutexLock lock(m_);
  const InodePointer inode = SL_TRY(find(node));
  const std::shared_lock inode_lock(inode->m);
  std::vector<std::string> names;
  for (const auto& [name, value] : inode->xattrs) names.push_back(name);
  return names;
}

Status MemoryVfs::set_xattr(const Caller&, Node node, std::string_view name, std::string_view value,
                            const SetXattr& options) {
  MutexLock lock(m_);
  const InodePointer inode = SL_TRY(find(node));
  const std::unique_lock inode_lock(inode->m);
  const bool there = inode->xattrs.contains(name);
  if (there && options.flags == 1)
    return Status(Errc::exists, "the attribute exists");  // XATTR_CREATE
  if (!there && options.flags == 2)
    return Status(Errc::no_attribute, "there is no such attribute");  // XATTR_REPLACE
  inode->xattrs.insert_or_assign(std::string(name), std::string(value));
  return {};
}

Status MemoryVfs::remove_xattr(const Caller&, Node node, std::string_view name) {
  MutexLock lock(m_);
  const InodePointer inode = SL_TRY(find(node));
  const std::unique_lock inode_lock(inode->m);
  const auto found = inode->xattrs.find(name);
  if (found == inode->xattrs.end()) return Status(Errc::no_attribute, "no such attribute");
  inode->xattrs.erase(found);
  return {};
}

Result<client::StatFs> MemoryVfs::stat_fs(const Caller&, Node) {
  client::StatFs figures;
  figures.blocks = figures.blocks_free = figures.blocks_available = kMaxFile / figures.block_size;
  figures.files = figures.files_free = 1 << 30;
  return figures;
}

}  // namespace starlane::fuse
