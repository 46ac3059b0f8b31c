// A file's attributes as this client keeps them, from the wire's and to what a front end shows.
// Pure.
#pragma once
#include <cstdint>
#include <optional>

#include "client/file_io.h"
#include "client/vfs.h"
#include "common/clock.h"
#include "common/ids.h"
#include "proto/meta.pb.h"

namespace starlane::client {

struct Attributes {
  InodeId inode;
  std::uint32_t mode = 0;
  std::uint32_t nlink = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t rdev = 0;
  std::uint64_t length = 0;
  std::uint64_t bytes = 0;
  WallTime atime, mtime, ctime;
  std::uint64_t version = 0;
  std::uint32_t generation = 0;
  std::uint32_t flags = 0;  // kImmutable, kAppendOnly
  InodeId parent;
  bool has_xattrs = false;  // false: it has none

  bool is_directory() const;
  bool is_regular() const;
  FileState state() const { return {version, length}; }
};

Attributes attributes_of(const pb::Attributes& wire);
/// What a directory becomes when it gains or loses a name at `at`. Nothing where that cannot be
/// told: what is known is not older, for it has this change already (of a call that was repeated),
/// or its time was set, or the server's clock went back.
std::optional<Attributes> after_entry(const Attributes& directory, const WallTime& at,
                                      int subdirectories);
void put_time(const WallTime& time, pb::Time* out);
/// All of a change but what the handle is.
void put_change(const SetStat& change, pb::SetAttributesRequest* out);
/// Mode, owner and atime as after the change; `shown` is a Stat or Attributes.
template <typename T>
void show_change(const SetStat& change, T& shown) {
  if (change.mode) shown.mode = (shown.mode & ~07777U) | (*change.mode & 07777);
  shown.uid = change.uid.value_or(shown.uid);
  shown.gid = change.gid.value_or(shown.gid);
  shown.atime = change.atime.value_or(shown.atime);
}

/// st_ino: the same on every host and after every restart, different in clones and snapshots.
constexpr std::uint64_t st_ino(ViewId view, InodeId inode) {
  return std::uint64_t{view.value} << 40 | inode.value;
}

/// dirty: what of it is not committed yet.
Stat stat_of(ViewId view, const Attributes& attributes, const std::optional<DirtyState>& dirty);

}  // namespace starlane::client
