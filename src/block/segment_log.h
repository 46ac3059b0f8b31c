// The segments of a target: files that are only ever appended to, by many threads at once, each
// into a range of its own. Knows nothing of blocks beyond the ranges their records take.
//   append: allocate -> write -> written -> (publish) -> end_write    sync: everything written
//   release: a range -> a hole
// Any thread, except where a function says "the indexer's". Locks are never held over transfers.
#pragma once
#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "block/index.h"
#include "block/record.h"
#include "block/shared_run.h"
#include "common/mutex.h"
#include "disk/disk.h"

namespace starlane::block {

/// Open files of segments, at most a number of them. Any thread.
class FileCache {
 public:
  FileCache(Disk& disk, std::size_t limit) : disk_(disk), limit_(limit) {}
  using FilePtr = std::shared_ptr<DiskFile>;
  Result<FilePtr> get(std::uint64_t segment) SL_EXCLUDES(m_);
  void put(std::uint64_t segment, FilePtr file) SL_EXCLUDES(m_);
  void drop(std::uint64_t segment) SL_EXCLUDES(m_);

 private:
  using Order = std::list<std::pair<std::uint64_t, FilePtr>>;  // newest first
  void insert(std::uint64_t segment, FilePtr file) SL_REQUIRES(m_);

  Disk& disk_;
  const std::size_t limit_;
  Mutex m_;
  Order order_ SL_GUARDED_BY(m_);
  std::unordered_map<std::uint64_t, Order::iterator> by_segment_ SL_GUARDED_BY(m_);
};

class SegmentLog {
 public:
  struct Options {
    std::uint64_t segment_bytes = 512_MiB;
    std::uint64_t reserve_step = 32_MiB;  // space is asked of the device in such pieces
    std::size_t lanes = 4;  // segments appended to at once: file systems lock a file per write
    std::size_t open_files = 512;
  };
  /// A range that belongs to the caller until end_write.
  struct Range {
    std::uint64_t segment = 0;
    std::uint64_t offset = 0;
    std::uint32_t length = 0;
    FileCache::FilePtr file;
    std::size_t lane = 0;
  };

  SegmentLog(Disk& disk, const Options& options);

  /// Takes over the segments in the directory. Each begins where its mark ends and is still to be
  /// scanned.
  Status open(const std::map<std::uint64_t, SegmentMark>& marks);

  /// `length`: whole pages, at most kMostRecord. no_space, io.
  Result<Range> allocate(std::uint32_t length);
  /// After the write: the next sync covers it.
  void written(const Range& range);
  /// When the record can be found by other means, or never will be: from here on marks may pass it.
  void end_write(const Range& range);
  /// Gives back the space of whole records. The range is never used again.
  Status release(std::uint64_t segment, std::uint64_t offset, std::uint64_t length);

  /// Makes everything durable that was `written` before. Callers share syncs. After a failure
  /// nothing can be trusted to be durable: it fails for ever.
  Status sync();

  Result<FileCache::FilePtr> file(std::uint64_t segment) { return files_.get(segment); }
  std::uint64_t next_sequence() { return sequence_.fetch_add(1, std::memory_order_relaxed); }

  // The indexer's (one thread at a time), and before anything else while the segments are scanned.
  /// Marks as an index written now may carry them: no record before is under way. Live bytes are
  /// the caller's.
  std::map<std::uint64_t, SegmentMark> marks() const;
  struct Scan {
    std::uint64_t segment = 0, from = 0;
  };
  /// Segments that may hold something that is not indexed.
  std::vector<Scan> to_scan() const;
  /// The scan of a segment has come to `end`; next_sequence() will be beyond `sequence`.
  void scanned_to(std::uint64_t segment, std::uint64_t end, std::uint64_t sequence);
  /// Whether a segment is sealed and everything in it is before `indexed_to`.
  bool is_done(std::uint64_t segment, std::uint64_t indexed_to) const;
  Status drop(std::uint64_t segment);
  /// Gives back space that was reserved and not used. No writer may be at work.
  void trim();

 private:
  struct Segment {
    FileCache::FilePtr file;  // until it is sealed and synced
    std::uint64_t end = 0;    // of the last record
    std::uint64_t reserved = 0;
    bool sealed = false;
    bool dirty = false;               // written since the last sync
    std::set<std::uint64_t> writing;  // offsets of records under way
  };
  struct Lane {
    std::uint64_t segment = 0;  // 0: none
    std::size_t writers = 0;
    bool busy = false;  // one thread is making room
  };

  std::size_t pick_lane(std::uint32_t length) SL_REQUIRES(m_);
  bool fits(const Lane& lane, std::uint32_t length) const SL_REQUIRES(m_);
  Range take(std::size_t lane, std::uint32_t length) SL_REQUIRES(m_);
  Status make_room(std::size_t lane, std::uint32_t length) SL_EXCLUDES(m_);
  void seal_if_full(std::size_t lane, std::uint32_t length) SL_EXCLUDES(m_);
  std::uint64_t claim_segment(std::size_t lane, std::uint32_t length, bool& fresh) SL_EXCLUDES(m_);
  Status extend(std::uint64_t number, std::uint32_t length) SL_EXCLUDES(m_);
  Result<FileCache::FilePtr> create(std::uint64_t number) SL_EXCLUDES(m_);
  Status sync_dirty() SL_EXCLUDES(m_);
  Status sync_files(const std::vector<FileCache::FilePtr>& files);
  std::vector<FileCache::FilePtr> take_dirty() SL_EXCLUDES(m_);

  Disk& disk_;
  const Options options_;
  FileCache files_;
  std::atomic<std::uint64_t> sequence_ = 1;  // a counter: no pair

  mutable Mutex m_;
  CondVar room_;
  std::map<std::uint64_t, Segment> segments_ SL_GUARDED_BY(m_);
  std::vector<Lane> lanes_ SL_GUARDED_BY(m_);
  std::uint64_t next_segment_ SL_GUARDED_BY(m_) = 1;

  SharedRun syncs_;
  Status broken_ SL_GUARDED_BY(m_);  // of a sync
};

/// "segment.000000000000002a", and back; 0 for other names.
std::string segment_name(std::uint64_t number);
std::uint64_t segment_number(const std::string& name);

}  // namespace starlane::block
