#include "client/write/replay.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>

#include "client/write/arena_format.h"
#include "common/errno.h"

namespace starlane::client {
namespace {

class Mapping {
 public:
  explicit Mapping(int fd) {
    struct stat st;
    if (::fstat(fd, &st) != 0 || st.st_size < static_cast<off_t>(ArenaHeader::kRecordsOffset))
      return;
    void* const at =
        ::mmap(nullptr, static_cast<std::size_t>(st.st_size), PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return;
    bytes = {static_cast<const std::byte*>(at), static_cast<std::size_t>(st.st_size)};
  }
  ~Mapping() {
    if (!bytes.empty()) ::munmap(const_cast<std::byte*>(bytes.data()), bytes.size());
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ByteSpan bytes;
};

/// Its bytes within the arena, and where they belong within what a file can be.
bool lies_inside(const ArenaRecord& record, const ArenaHeader& header) {
  return record.arena_offset <= header.data_bytes &&
         record.length <= header.data_bytes - record.arena_offset && record.offset <= INT64_MAX &&
         record.length <= INT64_MAX - record.offset;
}

}  // namespace

Result<Replayed> replay_arena(int fd, const std::function<Status(const ReplayedExtent&)>& each) {
  const Mapping arena(fd);
  if (arena.bytes.empty()) return Status(Errc::invalid, "the write arena cannot be mapped");
  const auto header = load_little<ArenaHeader>(arena.bytes.data());
  SL_TRY(check(header, arena.bytes.size()));
  std::vector<ArenaRecord> live;
  for (std::uint64_t i = 0; i < header.records; ++i) {
    const auto record = load_little<ArenaRecord>(arena.bytes.data() + ArenaHeader::kRecordsOffset +
                                                 i * sizeof(ArenaRecord));
    if (record.state == ArenaRecord::kLive && record.length != 0) live.push_back(record);
  }
  std::ranges::sort(live, {}, &ArenaRecord::sequence);
  Replayed replayed;
  bool damaged = false;
  for (const ArenaRecord& record : live) {
    if (!lies_inside(record, header)) {
      damaged = true;
      continue;
    }
    SL_TRY(each({{BranchId(record.branch), InodeId(record.inode)},
                 record.offset,
                 arena.bytes.subspan(header.data_offset + record.arena_offset, record.length),
                 (record.flags & ArenaRecord::kKillPrivileges) != 0,
                 SliceId(record.slice),
                 record.sequence}));
    ++replayed.extents;
    replayed.bytes += record.length;
  }
  if (damaged)
    return Status(Errc::corrupt, "a record of the write arena points outside it or its file");
  return replayed;
}

Result<Replayed> replay_arena(int fd, FileIo& io) {
  return replay_arena(fd, [&io](const ReplayedExtent& extent) {
    return io.write({extent.file, {}, extent.offset, extent.bytes, extent.kill_privileges});
  });
}

}  // namespace starlane::client
