#include "block/indexer.h"

#include <algorithm>
#include <cstdlib>

#include "codec/crc32c.h"
#include "common/log.h"
#include "common/thread_pool.h"

namespace starlane::block {

/// One write of the index, while it is put together.
struct Indexer::Plan {
  struct Hole {
    std::uint64_t segment, offset, length;
    friend auto operator<=>(const Hole&, const Hole&) = default;
  };
  IndexBatch batch;
  std::map<std::uint64_t, SegmentMark> marks;
  std::vector<std::uint64_t> dropped;  // segments with nothing alive
  std::vector<Hole> holes;
  Totals totals;
  bool changed = false;
};

Indexer::Indexer(Disk& disk, Index& index, SegmentLog& log, Recent& recent, const Options& options)
    : disk_(disk), index_(index), log_(log), recent_(recent), options_(options) {}

Indexer::~Indexer() { stop(); }

Status Indexer::open() {
  marks_ = SL_TRY(index_.segments());
  const Totals totals = SL_TRY(index_.totals());
  MutexLock lock(m_);
  totals_ = totals;
  return {};
}

void Indexer::start(const std::string& name) {
  thread_ = std::thread([this, name] {
    name_this_thread(name);
    run();
  });
}

void Indexer::stop() {
  {
    MutexLock lock(m_);
    stopping_ = true;
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Indexer::run() {
  while (true) {
    {
      MutexLock lock(m_);
      if (!stopping_ && recent_.bytes() < options_.recent_bytes / 2) {
        wake_.wait_for(m_, options_.interval);
      }
      if (stopping_) return;
    }
    const bool failed_before = !last_failure().ok();
    if (recent_.bytes() == 0) continue;
    const Status status = write_now();
    if (status.ok()) continue;
    if (!failed_before) {
      SL_LOG(error, "event=index_write_failed directory={} reason=\"{}\"", disk_.directory(),
             status.text());
    }
    // The failure is kept for those who put; the next round tries again, not at once.
    MutexLock lock(m_);
    if (!stopping_) wake_.wait_for(m_, options_.interval);
  }
}

Status Indexer::write_now() {
  return runs_.run([this] {
    Status status = write();
    MutexLock lock(m_);
    failure_ = status;
    room_.notify_all();
    return status;
  });
}

Status Indexer::wait_for_room(Deadline deadline) {
  if (recent_.bytes() < options_.recent_bytes / 2) return {};
  MutexLock lock(m_);
  wake_.notify_all();
  while (recent_.bytes() >= options_.recent_bytes) {
    if (!failure_.ok()) return failure_;
    if (deadline.passed()) return Status(Errc::timeout, "the block index cannot keep up");
    room_.wait_for(m_, Milliseconds(100));
  }
  return {};
}

Totals Indexer::totals() const {
  MutexLock lock(m_);
  return totals_;
}

Status Indexer::last_failure() const {
  MutexLock lock(m_);
  return failure_;
}

Status Indexer::write() {
  if (pending_.empty()) {
    // Marks first: every record before a mark is published by now, so it will be among the frozen.
    next_marks_ = log_.marks();
    pending_ = recent_.freeze();
    write_fence_records();
  }
  SL_TRY(log_.sync());
  Plan plan;
  plan.marks = marks_;
  plan.totals = totals();
  add_blocks(plan);
  SL_TRY(add_removals(plan));
  add_marks(plan);
  if (!plan.changed && pending_.empty()) return {};
  plan.batch.put(plan.totals);
  punch(plan);  // before the rows go, which alone know the places; the fences are durable already
  SL_TRY(index_.apply(plan.batch));
  marks_ = std::move(plan.marks);
  {
    MutexLock lock(m_);
    totals_ = plan.totals;
  }
  recent_.thaw();
  pending_ = {};
  for (const std::uint64_t segment : plan.dropped) (void)log_.drop(segment);
  return {};
}

void Indexer::add_blocks(Plan& plan) const {
  for (const auto& [block, entry] : pending_.blocks) {
    plan.batch.put(block, *entry);
    plan.marks[entry->segment].live_bytes += entry->record_length;
    plan.totals.blocks += 1;
    plan.totals.bytes += entry->length;
  }
}

Status Indexer::add_removals(Plan& plan) const {
  for (const SliceKey& slice : pending_.removed) {
    for (const auto& [block, entry] : SL_TRY(index_.blocks_of(slice))) {
      plan.batch.erase(block);
      plan.totals.blocks -= std::min<std::uint64_t>(plan.totals.blocks, 1);
      if (entry == nullptr) continue;  // damaged: its space is lost until the index is rebuilt
      plan.totals.bytes -= std::min<std::uint64_t>(plan.totals.bytes, entry->length);
      auto& live = plan.marks[entry->segment].live_bytes;
      live -= std::min<std::uint64_t>(live, entry->record_length);
      plan.holes.push_back({entry->segment, entry->offset, entry->record_length});
    }
    plan.batch.end_pending(slice);
  }
  return {};
}

void Indexer::add_marks(Plan& plan) const {
  for (const auto& [segment, mark] : next_marks_) {
    SegmentMark& next = plan.marks[segment];
    next.indexed_to = mark.indexed_to;
    next.sealed = mark.sealed;
  }
  for (auto it = plan.marks.begin(); it != plan.marks.end();) {
    const auto& [segment, mark] = *it;
    if (mark.live_bytes == 0 && log_.is_done(segment, mark.indexed_to)) {
      plan.batch.erase_segment(segment);
      plan.dropped.push_back(segment);
      plan.changed = true;
      it = plan.marks.erase(it);
      continue;
    }
    const auto before = marks_.find(segment);
    if (before == marks_.end() || before->second != mark) {
      plan.batch.put(segment, mark);
      plan.changed = true;
    }
    ++it;
  }
}

void Indexer::punch(const Plan& plan) const {
  auto holes = plan.holes;
  std::ranges::sort(holes);
  for (std::size_t i = 0; i < holes.size();) {
    Plan::Hole hole = holes[i];
    for (++i; i < holes.size() && holes[i].segment == hole.segment &&
              holes[i].offset == hole.offset + hole.length;
         ++i) {
      hole.length += holes[i].length;
    }
    if (std::ranges::count(plan.dropped, hole.segment) != 0) continue;  // goes as a whole
    const Status status = log_.release(hole.segment, hole.offset, hole.length);
    if (status.ok() || status.code() == Errc::not_found) continue;
    SL_LOG(warn, "event=hole_not_punched directory={} segment={} offset={} length={} reason=\"{}\"",
           disk_.directory(), hole.segment, hole.offset, hole.length, status.text());
  }
}

void Indexer::write_fence_records() {
  std::span<const SliceKey> rest(pending_.removed);
  constexpr std::size_t kMost = kBlockSize / 16;
  while (!rest.empty()) {
    const std::size_t n = std::min(rest.size(), kMost);
    write_fence_record(rest.first(n));
    rest = rest.subspan(n);
  }
}

/// Fences are in the index; the record is for the day on which the index is lost. So a failure is
/// no harm today.
void Indexer::write_fence_record(std::span<const SliceKey> slices) {
  RecordHeader header;
  header.kind = RecordKind::fences;
  header.salt = options_.salt;
  header.sequence = log_.next_sequence();
  Entry& entry = header.entry;
  entry.length = entry.stored_length = static_cast<std::uint32_t>(16 * slices.size());
  entry.checksums.resize(divide_up(entry.length, kChecksumUnit));
  set_shape(entry);
  auto range = log_.allocate(entry.record_length);
  if (!range.ok()) return;
  entry.segment = range->segment;
  entry.offset = range->offset;
  const auto bytes = static_cast<std::byte*>(std::aligned_alloc(kPage, entry.record_length));
  SL_CHECK(bytes != nullptr);
  std::fill_n(bytes, entry.record_length, std::byte{0});
  std::byte* at = bytes + entry.payload_offset;
  for (const SliceKey& slice : slices) {
    store_little(at, slice.owner.value);
    store_little(at + 8, slice.slice.value);
    at += 16;
  }
  entry.checksums = checksum_units({bytes + entry.payload_offset, entry.length});
  encode(header, {bytes, entry.record_length});
  const Status status = range->file->write(range->offset, {bytes, entry.record_length});
  log_.written(*range);
  if (!status.ok()) (void)log_.release(range->segment, range->offset, range->length);
  log_.end_write(*range);
  std::free(bytes);
}

}  // namespace starlane::block
