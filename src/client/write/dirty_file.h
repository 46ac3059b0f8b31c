// What this host has written to one file and not committed: extents in the arena, laid over each
// other in order, and the slices that they are leaving as. Nothing here blocks or calls out;
// everything is under the file's mutex `m`, which is never held over I/O or a copy of data.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/attachments.h"
#include "client/blocks/range_map.h"
#include "client/vfs.h"
#include "client/write/arena.h"
#include "common/ids.h"
#include "common/mutex.h"

namespace starlane::client {

struct PendingSlice;

/// Bytes of one or several writes that follow each other, in one piece of arena memory, under one
/// record. Lies inside one 4 MiB block of the file's grid, and leaves in one slice.
struct Extent {
  std::shared_ptr<Arena> arena;
  std::shared_ptr<Arena::Memory> memory;
  std::uint64_t memory_offset = 0;
  std::uint64_t offset = 0;   // in the file
  std::uint64_t length = 0;   // acknowledged, or about to be
  std::uint64_t claimed = 0;  // from memory_offset on: a writer is copying when it exceeds length
  std::uint32_t record = 0;
  std::uint32_t flags = 0;              // of the record
  bool open = true;                     // may grow
  bool recorded = true;                 // the record is ours still
  std::shared_ptr<PendingSlice> slice;  // null: loose, nothing has been put

  ~Extent() { forget(); }
  /// Its bytes are committed, discarded or failed: a restarted daemon need not know them.
  void forget() {
    if (recorded) arena->give_record(record);
    recorded = false;
  }
  const std::byte* data() const { return memory->data() + memory_offset; }
};

/// What shows of an extent.
struct DirtyPart {
  std::shared_ptr<Extent> extent;
  std::uint64_t from = 0;  // in the extent
  void skip(std::uint64_t bytes) { from += bytes; }
};

/// A slice on its way: blocks are put as they fill, the last one by a flush, which closes it.
struct PendingSlice {
  BranchId owner;
  std::uint64_t number = 0;  // in the file: commits keep this order
  std::uint64_t begin = 0;   // in the file
  std::uint64_t stored = 0;  // bytes of its blocks
  std::uint64_t length = 0;  // of those that the commit will name: less after a truncation
  std::uint32_t blocks = 0;
  std::uint32_t in_flight = 0;  // blocks, or the reservation of an inline slice
  bool closed = false;
  bool dropped = false;    // will never be committed
  bool reserving = false;  // somebody is getting the id
  SliceId id;              // none until then
  std::uint64_t batch = 0;
  std::uint64_t placement_epoch = 0;
  Attachment attachment;
  Status failure;
  std::string inline_data;
  std::vector<std::shared_ptr<Extent>> extents;
};

/// One block (or inline content) to be put, with what keeps its bytes.
struct PutJob {
  std::shared_ptr<PendingSlice> slice;
  std::uint32_t index = 0;
  std::vector<std::shared_ptr<Extent>> extents;
  std::vector<ByteSpan> pieces;
};

class DirtyFile {
 public:
  DirtyFile(FileKey file_key, std::shared_ptr<Arena> file_arena)
      : key(file_key), arena(std::move(file_arena)) {}
  ~DirtyFile() { drop_all(); }  // pending slices and their extents point at each other

  /// Room for a write: in the extent that ends there, or in `memory`, which the caller took.
  struct Room {
    std::shared_ptr<Extent> grows;
    std::shared_ptr<Arena::Memory> memory;
    std::uint64_t memory_offset = 0;
    std::uint64_t length = 0;
  };
  /// Room at the end of an open extent, or nothing, and then how much memory the writer should
  /// take.
  Room claim(std::uint64_t offset, std::uint64_t length, std::uint64_t* memory_wanted)
      SL_REQUIRES(m);
  /// The bytes are in the room. False: give it a record first (only where the room grows an
  /// extent).
  bool publish(const Room& room, std::uint64_t offset, std::optional<std::uint32_t>& record,
               std::uint32_t flags) SL_REQUIRES(m);
  /// The grid block at `offset` is wholly loose: it leaves now.
  bool block_is_full(std::uint64_t offset) const SL_REQUIRES(m);

  /// Loose parts of [begin, end) become slices; the jobs put them. close: nothing joins the last
  /// one.
  void freeze(std::uint64_t begin, std::uint64_t end, bool close, std::vector<PutJob>& jobs)
      SL_REQUIRES(m);
  /// Everything loose; inline where the whole file stays that small.
  void freeze_all(std::vector<PutJob>& jobs) SL_REQUIRES(m);

  /// Forgets the slice and what shows of it.
  void drop(const std::shared_ptr<PendingSlice>& slice) SL_REQUIRES(m);
  void drop_all() SL_NO_THREAD_SAFETY;
  /// Nothing from `length` on. Slices of which nothing is left are moved to `unused`.
  void cut(std::uint64_t new_length, std::vector<std::shared_ptr<PendingSlice>>& unused)
      SL_REQUIRES(m);

  /// No slice up to `number` is pending.
  bool settled_through(std::uint64_t number) const SL_REQUIRES(m) {
    return slices.empty() || slices.front()->number > number;
  }
  bool has_bytes() const SL_REQUIRES(m) { return !parts.empty() || !slices.empty(); }
  bool is_dirty() const SL_REQUIRES(m) { return has_bytes() || set; }

  const FileKey key;
  const std::shared_ptr<Arena> arena;
  Mutex m;
  CondVar changed;
  RangeMap<DirtyPart> parts SL_GUARDED_BY(m);
  std::deque<std::shared_ptr<PendingSlice>> slices SL_GUARDED_BY(m);  // in order of commit
  std::uint64_t next_number SL_GUARDED_BY(m) = 1;
  std::uint64_t length SL_GUARDED_BY(m) = 0;            // end of the furthest dirty byte
  std::uint64_t committed_length SL_GUARDED_BY(m) = 0;  // as last heard
  WallTime mtime SL_GUARDED_BY(m);
  bool mtime_given SL_GUARDED_BY(m) = false;  // it was set, and nothing was written since
  WallTime ctime SL_GUARDED_BY(m);
  /// Attributes that go with the next commit. Not changed but by that while it is under way.
  std::optional<SetStat> set SL_GUARDED_BY(m);
  bool kill_privileges SL_GUARDED_BY(m) = false;
  Attachment attachment SL_GUARDED_BY(m);  // that all of it was written under
  Status error SL_GUARDED_BY(m);           // the first since the last flush
  bool committing SL_GUARDED_BY(m) = false;
  bool queued SL_GUARDED_BY(m) = false;            // background work for it is
  std::uint64_t ready_bytes SL_GUARDED_BY(m) = 0;  // put and not committed
  Nanoseconds dirty_since SL_GUARDED_BY(m){
      0};  // boot time of the oldest byte that no flush has taken; 0: none

 private:
  std::uint64_t loose_bytes(std::uint64_t begin, std::uint64_t end) const SL_REQUIRES(m);
  void show(std::shared_ptr<Extent> extent, std::uint64_t offset, std::uint64_t bytes)
      SL_REQUIRES(m);
  void freeze_run(std::uint64_t begin, std::uint64_t end, std::vector<PutJob>& jobs) SL_REQUIRES(m);
  std::shared_ptr<PendingSlice> slice_for(std::uint64_t begin) SL_REQUIRES(m);
  std::shared_ptr<PendingSlice> new_slice(std::uint64_t begin) SL_REQUIRES(m);
  void freeze_block(const std::shared_ptr<PendingSlice>& slice, std::uint64_t begin,
                    std::uint64_t end, std::vector<PutJob>& jobs) SL_REQUIRES(m);
  void cut_record(Extent& extent, std::uint64_t new_length) SL_REQUIRES(m);
  bool freeze_inline(std::vector<PutJob>& jobs) SL_REQUIRES(m);

  std::map<std::uint64_t, std::uint64_t> loose_ SL_GUARDED_BY(m);  // bytes by block of the grid
};

}  // namespace starlane::client
