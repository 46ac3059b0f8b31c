#include "block/segment_log.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

namespace starlane::block {
namespace {

constexpr std::string_view kPrefix = "segment.";

}  // namespace

std::string segment_name(std::uint64_t number) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016" PRIx64, number);
  return std::string(kPrefix) + digits;
}

std::uint64_t segment_number(const std::string& name) {
  if (name.size() != kPrefix.size() + 16 || !name.starts_with(kPrefix)) return 0;
  const std::string digits = name.substr(kPrefix.size());
  if (digits.find_first_not_of("0123456789abcdef") != std::string::npos) return 0;
  return std::stoull(digits, nullptr, 16);
}

Result<FileCache::FilePtr> FileCache::get(std::uint64_t segment) {
  {
    MutexLock lock(m_);
    if (const auto it = by_segment_.find(segment); it != by_segment_.end()) {
      order_.splice(order_.begin(), order_, it->second);
      return it->second->second;
    }
  }
  FilePtr file = SL_TRY(disk_.open(segment_name(segment), OpenFile::existing));
  MutexLock lock(m_);
  insert(segment, file);
  return file;
}

void FileCache::put(std::uint64_t segment, FilePtr file) {
  MutexLock lock(m_);
  insert(segment, std::move(file));
}

void FileCache::insert(std::uint64_t segment, FilePtr file) {
  if (by_segment_.contains(segment)) return;  // another thread was faster
  order_.emplace_front(segment, std::move(file));
  by_segment_[segment] = order_.begin();
  if (order_.size() <= limit_) return;
  by_segment_.erase(order_.back().first);
  order_.pop_back();  // closed when the last reader has done
}

void FileCache::drop(std::uint64_t segment) {
  MutexLock lock(m_);
  const auto it = by_segment_.find(segment);
  if (it == by_segment_.end()) return;
  order_.erase(it->second);
  by_segment_.erase(it);
}

SegmentLog::SegmentLog(Disk& disk, const Options& options)
    : disk_(disk), options_(options), files_(disk, options.open_files), lanes_(options.lanes) {
  SL_CHECK(options.lanes > 0 && options.segment_bytes >= kMostRecord);
}

Status SegmentLog::open(const std::map<std::uint64_t, SegmentMark>& marks) {
  SL_TRY(disk_.sync_directory());  // a process may have been killed before it did
  const auto names = SL_TRY(disk_.list());
  MutexLock lock(m_);
  for (const auto& [number, mark] : marks) next_segment_ = std::max(next_segment_, number + 1);
  for (const std::string& name : names) {
    const std::uint64_t number = segment_number(name);
    if (number == 0) continue;
    next_segment_ = std::max(next_segment_, number + 1);
    Segment& segment = segments_[number];
    if (const auto it = marks.find(number); it != marks.end()) {
      segment.end = it->second.indexed_to;
      segment.sealed = it->second.sealed;
    }
  }
  return {};
}

std::vector<SegmentLog::Scan> SegmentLog::to_scan() const {
  MutexLock lock(m_);
  std::vector<Scan> scans;
  for (const auto& [number, segment] : segments_) {
    if (!segment.sealed) scans.push_back({number, segment.end});
  }
  return scans;
}

void SegmentLog::scanned_to(std::uint64_t number, std::uint64_t end, std::uint64_t sequence) {
  if (sequence >= sequence_.load(std::memory_order_relaxed)) sequence_ = sequence + 1;
  MutexLock lock(m_);
  Segment& segment = segments_.at(number);
  segment.end = end;
  segment.sealed = end + kMostRecord > options_.segment_bytes;
}

bool SegmentLog::fits(const Lane& lane, std::uint32_t length) const {
  if (lane.segment == 0) return false;
  const Segment& segment = segments_.at(lane.segment);
  return segment.end + length <= segment.reserved;
}

std::size_t SegmentLog::pick_lane(std::uint32_t length) {
  while (true) {
    std::size_t best = lanes_.size();
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      if (lanes_[i].busy) continue;
      if (best == lanes_.size() || lanes_[i].writers < lanes_[best].writers) best = i;
    }
    if (best != lanes_.size()) {
      ++lanes_[best].writers;
      if (!fits(lanes_[best], length)) lanes_[best].busy = true;
      return best;
    }
    room_.wait(m_);
  }
}

SegmentLog::Range SegmentLog::take(std::size_t lane, std::uint32_t length) {
  Segment& segment = segments_.at(lanes_[lane].segment);
  const std::uint64_t at = std::exchange(segment.end, segment.end + length);
  segment.writing.insert(at);
  return {lanes_[lane].segment, at, length, segment.file, lane};
}

Result<SegmentLog::Range> SegmentLog::allocate(std::uint32_t length) {
  SL_CHECK(length > 0 && length % kPage == 0 && length <= kMostRecord);
  std::size_t lane = 0;
  {
    MutexLock lock(m_);
    lane = pick_lane(length);
    if (!lanes_[lane].busy) return take(lane, length);
  }
  const Status made = make_room(lane, length);
  MutexLock lock(m_);
  lanes_[lane].busy = false;
  room_.notify_all();
  if (made.ok()) return take(lane, length);
  --lanes_[lane].writers;
  return made;
}

void SegmentLog::seal_if_full(std::size_t lane, std::uint32_t length) {
  FileCache::FilePtr file;
  std::uint64_t end = 0;
  {
    MutexLock lock(m_);
    if (lanes_[lane].segment == 0) return;
    Segment& segment = segments_.at(lanes_[lane].segment);
    if (segment.end + length <= options_.segment_bytes) return;
    segment.sealed = true;
    lanes_[lane].segment = 0;
    file = segment.file;
    end = segment.end;
  }
  // Writers may still be at work below `end`; what is above was only reserved. Space that stays
  // there does no harm.
  (void)file->truncate(end);
}

std::uint64_t SegmentLog::claim_segment(std::size_t lane, std::uint32_t length, bool& fresh) {
  MutexLock lock(m_);
  std::uint64_t& mine = lanes_[lane].segment;
  fresh = false;
  if (mine != 0) return mine;
  for (const auto& [number, segment] : segments_) {  // a tail of an earlier life
    const bool taken =
        std::ranges::any_of(lanes_, [n = number](const Lane& l) { return l.segment == n; });
    if (segment.sealed || taken || segment.end + length > options_.segment_bytes) continue;
    return mine = number;
  }
  fresh = true;
  return next_segment_++;
}

Status SegmentLog::make_room(std::size_t lane, std::uint32_t length) {
  seal_if_full(lane, length);
  bool fresh = false;
  const std::uint64_t number = claim_segment(lane, length, fresh);
  auto file = fresh ? create(number) : files_.get(number);
  {
    MutexLock lock(m_);
    if (!file.ok()) {
      lanes_[lane].segment = 0;
      if (!fresh) segments_.at(number).sealed = true;  // the next put takes another one
      return file.status();
    }
    segments_[number].file = *file;
    lanes_[lane].segment = number;
  }
  return extend(number, length);
}

Result<FileCache::FilePtr> SegmentLog::create(std::uint64_t number) {
  FileCache::FilePtr file = SL_TRY(disk_.open(segment_name(number), OpenFile::create));
  SL_TRY(disk_.sync_directory());  // a sync of the file later must find its name on the device
  files_.put(number, file);
  return file;
}

Status SegmentLog::extend(std::uint64_t number, std::uint32_t length) {
  FileCache::FilePtr file;
  std::uint64_t end = 0;
  {
    MutexLock lock(m_);
    file = segments_.at(number).file;
    end = segments_.at(number).end;
  }
  std::uint64_t step = std::min(std::max<std::uint64_t>(options_.reserve_step, length),
                                options_.segment_bytes - end);
  Status reserved = file->reserve(end, step);
  if (reserved.code() == Errc::no_space) {  // the last bytes of a device come piece by piece
    step = length;
    reserved = file->reserve(end, step);
  }
  SL_TRY(reserved);
  MutexLock lock(m_);
  segments_.at(number).reserved = end + step;
  return {};
}

void SegmentLog::written(const Range& range) {
  MutexLock lock(m_);
  segments_.at(range.segment).dirty = true;
}

void SegmentLog::end_write(const Range& range) {
  MutexLock lock(m_);
  segments_.at(range.segment).writing.erase(range.offset);
  --lanes_[range.lane].writers;
}

Status SegmentLog::release(std::uint64_t number, std::uint64_t offset, std::uint64_t length) {
  const auto file = SL_TRY(files_.get(number));
  return file->punch(offset, length);
}

std::vector<FileCache::FilePtr> SegmentLog::take_dirty() {
  std::vector<FileCache::FilePtr> files;
  MutexLock lock(m_);
  for (auto& [number, segment] : segments_) {
    if (segment.file == nullptr) continue;
    if (std::exchange(segment.dirty, false)) files.push_back(segment.file);
    if (segment.sealed && segment.writing.empty()) segment.file = nullptr;
  }
  return files;
}

Status SegmentLog::sync_files(const std::vector<FileCache::FilePtr>& files) {
  std::vector<DiskOperation> operations(files.size());
  Batch batch;
  batch.expect(files.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    operations[i].kind = DiskOperation::Kind::sync;
    operations[i].batch = &batch;
    files[i]->start(operations[i]);
  }
  return batch.wait();
}

Status SegmentLog::sync_dirty() {
  {
    MutexLock lock(m_);
    if (!broken_.ok()) return broken_;
  }
  const Status status = sync_files(take_dirty());
  // After a failed sync the kernel calls pages clean that are not: another try would lie.
  MutexLock lock(m_);
  if (!status.ok()) broken_ = status;
  return broken_;
}

Status SegmentLog::sync() {
  return syncs_.run([this] { return sync_dirty(); });
}

std::map<std::uint64_t, SegmentMark> SegmentLog::marks() const {
  MutexLock lock(m_);
  std::map<std::uint64_t, SegmentMark> result;
  for (const auto& [number, segment] : segments_) {
    const bool idle = segment.writing.empty();
    result[number] = {idle ? segment.end : *segment.writing.begin(), 0, segment.sealed && idle};
  }
  return result;
}

bool SegmentLog::is_done(std::uint64_t number, std::uint64_t indexed_to) const {
  MutexLock lock(m_);
  const auto it = segments_.find(number);
  return it != segments_.end() && it->second.sealed && it->second.writing.empty() &&
         it->second.end <= indexed_to;
}

Status SegmentLog::drop(std::uint64_t number) {
  {
    MutexLock lock(m_);
    segments_.erase(number);
  }
  files_.drop(number);
  return disk_.remove(segment_name(number));
}

void SegmentLog::trim() {
  MutexLock lock(m_);
  for (auto& [number, segment] : segments_) {
    if (segment.file == nullptr || segment.sealed || !segment.writing.empty()) continue;
    if (segment.file->truncate(segment.end).ok()) segment.reserved = segment.end;
  }
}

}  // namespace starlane::block
