// Moves what is recent into the index, once a second and when much has come together: one sync of
// the segments, then one durable batch of rows with the marks up to which the segments are indexed.
// Gives back the space of removed slices and of empty segments. Any thread, through write_now();
// runs one at a time.
#pragma once
#include <thread>

#include "block/recent.h"
#include "block/segment_log.h"
#include "common/clock.h"

namespace starlane::block {

class Indexer {
 public:
  struct Options {
    Milliseconds interval{1000};
    std::uint64_t recent_bytes = 32_MiB;  // written at half of it; puts wait at all of it
    std::uint64_t salt = 0;
  };

  Indexer(Disk& disk, Index& index, SegmentLog& log, Recent& recent, const Options& options);
  ~Indexer();

  /// Loads marks and totals; before anything else.
  Status open();
  /// From here on also by itself. `name` for ps.
  void start(const std::string& name);
  /// Ends the thread; what is recent stays so.
  void stop();

  /// Everything that ended before is in the index and durable when this returns. Callers share
  /// runs.
  Status write_now();
  /// The same when much is recent; else nothing.
  Status write_if_much() {
    return recent_.bytes() < options_.recent_bytes / 2 ? Status() : write_now();
  }
  /// Waits while there is too much that is recent. timeout, or what keeps the index from being
  /// written.
  Status wait_for_room(Deadline deadline);

  const std::map<std::uint64_t, SegmentMark>& marks() const { return marks_; }  // before start
  Totals totals() const;
  Status last_failure() const;

 private:
  struct Plan;
  Status write();
  void add_blocks(Plan& plan) const;
  Status add_removals(Plan& plan) const;
  void add_marks(Plan& plan) const;
  void punch(const Plan& plan) const;
  void write_fence_records();
  void write_fence_record(std::span<const SliceKey> slices);
  void run();

  Disk& disk_;
  Index& index_;
  SegmentLog& log_;
  Recent& recent_;
  const Options options_;
  SharedRun runs_;

  // The running write's.
  std::map<std::uint64_t, SegmentMark> marks_;       // as the index has them
  std::map<std::uint64_t, SegmentMark> next_marks_;  // taken before pending_
  Recent::Frozen pending_;                           // frozen and not in the index yet

  mutable Mutex m_;
  CondVar wake_, room_;
  bool stopping_ SL_GUARDED_BY(m_) = false;
  Totals totals_ SL_GUARDED_BY(m_);
  Status failure_ SL_GUARDED_BY(m_);  // of the last run
  std::thread thread_;
};

}  // namespace starlane::block
