#include "client/names/attributes.h"

#include <sys/stat.h>

#include <algorithm>

namespace starlane::client {
namespace {

constexpr std::uint32_t kHasXattrs = 65536;  // of pb::Attributes::flags

WallTime time_of(const pb::Time& wire) { return {wire.seconds(), wire.nanoseconds()}; }

}  // namespace

bool Attributes::is_directory() const { return S_ISDIR(mode); }
bool Attributes::is_regular() const { return S_ISREG(mode); }

Attributes attributes_of(const pb::Attributes& wire) {
  return {
      .inode = InodeId(wire.inode()),
      .mode = wire.mode(),
      .nlink = wire.nlink(),
      .uid = wire.uid(),
      .gid = wire.gid(),
      .rdev = wire.rdev(),
      .length = wire.length(),
      .bytes = wire.bytes(),
      .atime = time_of(wire.atime()),
      .mtime = time_of(wire.mtime()),
      .ctime = time_of(wire.ctime()),
      .version = wire.version(),
      .generation = wire.generation(),
      .flags = wire.flags() & ~kHasXattrs,
      .parent = InodeId(wire.parent()),
      .has_xattrs = (wire.flags() & kHasXattrs) != 0,
  };
}

std::optional<Attributes> after_entry(const Attributes& directory, const WallTime& at,
                                      int subdirectories) {
  if (directory.mtime >= at || directory.ctime >= at) return std::nullopt;
  Attributes after = directory;
  after.mtime = after.ctime = at;
  after.version += 1;
  after.nlink += static_cast<std::uint32_t>(subdirectories);
  return after;
}

void put_time(const WallTime& time, pb::Time* out) {
  out->set_seconds(time.seconds);
  out->set_nanoseconds(time.nanoseconds);
}

void put_change(const SetStat& change, pb::SetAttributesRequest* out) {
  if (change.mode) out->set_mode(*change.mode & 07777);
  if (change.uid) out->set_uid(*change.uid);
  if (change.gid) out->set_gid(*change.gid);
  if (change.length) out->set_length(*change.length);
  if (change.atime) put_time(*change.atime, out->mutable_atime());
  if (change.mtime) put_time(*change.mtime, out->mutable_mtime());
  if (change.ctime) put_time(*change.ctime, out->mutable_ctime());
  out->set_atime_now(change.atime_now);
  out->set_mtime_now(change.mtime_now);
  out->set_kill_privileges(change.kill_privileges);
}

Stat stat_of(ViewId view, const Attributes& attributes, const std::optional<DirtyState>& dirty) {
  Stat stat{
      .ino = st_ino(view, attributes.inode),
      .mode = attributes.mode,
      .nlink = attributes.nlink,
      .uid = attributes.uid,
      .gid = attributes.gid,
      .rdev = attributes.rdev,
      .length = attributes.length,
      .blocks = (attributes.bytes + 511) / 512,
      .atime = attributes.atime,
      .mtime = attributes.mtime,
      .ctime = attributes.ctime,
  };
  if (dirty) {
    // What is not committed counts as held: a file with data and no blocks looks like a hole to cp
    // and tar. Never more than the file is long: what lies over data will not add to it.
    stat.length = std::max(stat.length, dirty->length);
    stat.blocks = (std::min(attributes.bytes + dirty->bytes, stat.length) + 511) / 512;
    stat.mtime = dirty->mtime_given ? dirty->mtime : std::max(stat.mtime, dirty->mtime);
    stat.ctime = std::max(stat.ctime, dirty->ctime);
    if (dirty->set) show_change(*dirty->set, stat);
  }
  return stat;
}

}  // namespace starlane::client
