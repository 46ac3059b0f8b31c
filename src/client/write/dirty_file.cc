#include "client/write/dirty_file.h"

#include <algorithm>

namespace starlane::client {

DirtyFile::Room DirtyFile::claim(std::uint64_t offset, std::uint64_t bytes,
                                 std::uint64_t* memory_wanted) {
  const std::uint64_t grid_end = round_down(offset, kBlockSize) + kBlockSize;
  *memory_wanted = bytes;
  auto* const tail = parts.ending_at(offset);
  if (tail == nullptr) return {};
  Extent& extent = *tail->second.value.extent;
  // What follows a run is likely to go on: memory doubles until it is a block at a time.
  *memory_wanted =
      std::max(bytes, std::min({2 * extent.memory->size(), kBlockSize, grid_end - offset}));
  const std::uint64_t room =
      std::min(extent.memory->size() - extent.memory_offset - extent.claimed, grid_end - offset);
  const std::uint64_t length_here = std::min(bytes, room);
  const bool grows = extent.open && !extent.slice && extent.claimed == extent.length &&
                     extent.offset + extent.length == offset && length_here != 0 &&
                     offset % kBlockSize != 0 && !parts.touches(offset, offset + length_here);
  if (!grows) return {};
  const Room claimed{tail->second.value.extent, extent.memory,
                     extent.memory_offset + extent.claimed, length_here};
  extent.claimed += length_here;
  return claimed;
}

bool DirtyFile::publish(const Room& room, std::uint64_t offset,
                        std::optional<std::uint32_t>& record, std::uint32_t flags) {
  Extent* const old = room.grows.get();
  // A record keeps its place in the order, so it may grow only over what nobody wrote since.
  if (old != nullptr && old->open && !old->slice && old->flags == flags &&
      old->offset + old->length == offset && !parts.touches(offset, offset + room.length)) {
    old->length += room.length;
    arena->set_record_length(old->record, old->length);
    show(room.grows, offset, room.length);
    return true;
  }
  if (!record) return false;
  if (old != nullptr) old->open = false;
  auto extent = std::make_shared<Extent>();
  extent->arena = arena;
  extent->memory = room.memory;
  extent->memory_offset = room.memory_offset;
  extent->offset = offset;
  extent->length = extent->claimed = room.length;
  extent->open = old == nullptr;
  extent->flags = flags;
  extent->record = *record;
  record.reset();
  arena->write_record(
      extent->record,
      {ArenaRecord::kLive, flags, key.branch.value, key.inode.value, offset, room.length,
       room.memory->offset() + room.memory_offset, arena->next_sequence(), 0});
  show(std::move(extent), offset, room.length);
  return true;
}

void DirtyFile::show(std::shared_ptr<Extent> extent, std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t end = offset + bytes;
  loose_[offset / kBlockSize] += bytes - loose_bytes(offset, end);
  length = std::max(length, end);
  auto* const tail = parts.ending_at(offset);
  if (tail != nullptr && tail->second.value.extent == extent && !parts.touches(offset, end)) {
    parts.extend(tail->second, end);
    return;
  }
  const std::uint64_t from = offset - extent->offset;
  parts.assign(offset, end, DirtyPart{std::move(extent), from});
}

std::uint64_t DirtyFile::loose_bytes(std::uint64_t begin, std::uint64_t end) const {
  std::uint64_t bytes = 0;
  parts.visit(begin, end, [&](std::uint64_t from, std::uint64_t to, const DirtyPart& part) {
    if (!part.extent->slice) bytes += to - from;
  });
  return bytes;
}

bool DirtyFile::block_is_full(std::uint64_t offset) const {
  const auto at = loose_.find(offset / kBlockSize);
  return at != loose_.end() && at->second == kBlockSize;
}

void DirtyFile::freeze(std::uint64_t begin, std::uint64_t end, bool close,
                       std::vector<PutJob>& jobs) {
  struct Run {
    std::uint64_t begin, end;
  };
  std::vector<Run> runs;
  parts.visit(begin, end, [&](std::uint64_t from, std::uint64_t to, const DirtyPart& part) {
    if (part.extent->slice) return;
    const bool joins = !runs.empty() && runs.back().end == from && from % kChunkSize != 0;
    if (joins) {
      runs.back().end = to;
    } else {
      runs.push_back({from, to});
    }
  });
  for (const Run& run : runs) freeze_run(run.begin, run.end, jobs);
  loose_.erase(loose_.lower_bound(begin / kBlockSize),
               loose_.lower_bound(divide_up(end, kBlockSize)));
  if (close && !slices.empty()) slices.back()->closed = true;
}

void DirtyFile::freeze_all(std::vector<PutJob>& jobs) {
  dirty_since = Nanoseconds(0);
  if (!freeze_inline(jobs)) freeze(0, round_up(length, kBlockSize), true, jobs);
}

/// A run lies inside one chunk.
void DirtyFile::freeze_run(std::uint64_t begin, std::uint64_t end, std::vector<PutJob>& jobs) {
  const auto slice = slice_for(begin);
  for (std::uint64_t at = begin; at < end;) {
    const std::uint64_t stop = std::min(end, at + kBlockSize);
    freeze_block(slice, at, stop, jobs);
    at = stop;
  }
}

/// The last slice if this can be its next block (nothing was written over it since: its order is
/// kept), else a new one.
std::shared_ptr<PendingSlice> DirtyFile::slice_for(std::uint64_t begin) {
  if (!slices.empty()) {
    const auto& last = slices.back();
    const bool joins = !last->closed && last->failure.ok() && last->begin + last->stored == begin &&
                       last->begin / kChunkSize == begin / kChunkSize &&
                       last->stored % kBlockSize == 0;
    if (joins) return last;
  }
  return new_slice(begin);
}

std::shared_ptr<PendingSlice> DirtyFile::new_slice(std::uint64_t begin) {
  if (!slices.empty()) slices.back()->closed = true;
  auto slice = std::make_shared<PendingSlice>();
  slice->owner = key.branch;
  slice->number = next_number++;
  slice->begin = begin;
  slice->attachment = attachment;
  slices.push_back(slice);
  return slice;
}

void DirtyFile::freeze_block(const std::shared_ptr<PendingSlice>& slice, std::uint64_t begin,
                             std::uint64_t end, std::vector<PutJob>& jobs) {
  PutJob& job = jobs.emplace_back();
  job.slice = slice;
  job.index = slice->blocks++;
  parts.visit(begin, end, [&](std::uint64_t from, std::uint64_t to, const DirtyPart& part) {
    const ByteSpan piece(part.extent->data() + part.from, to - from);
    const bool joins =
        !job.pieces.empty() && job.pieces.back().data() + job.pieces.back().size() == piece.data();
    if (joins) {
      job.pieces.back() = {job.pieces.back().data(), job.pieces.back().size() + piece.size()};
    } else {
      job.pieces.push_back(piece);
    }
    if (job.extents.empty() || job.extents.back() != part.extent)
      job.extents.push_back(part.extent);
  });
  for (const auto& extent : job.extents) {
    if (!extent->slice) slice->extents.push_back(extent);
    extent->slice = slice;
    extent->open = false;
  }
  slice->stored += end - begin;
  slice->length = slice->stored;
  slice->closed = slice->stored % kBlockSize != 0;
  ++slice->in_flight;
}

/// Contents of a few bytes live in the metadata.
bool DirtyFile::freeze_inline(std::vector<PutJob>& jobs) {
  if (!slices.empty() || parts.empty() || parts.end() > kInlineLimit ||
      committed_length > kInlineLimit)
    return false;
  const std::uint64_t begin = parts.ranges().begin()->first, end = parts.end();
  if (loose_bytes(begin, end) != end - begin) return false;
  const auto slice = new_slice(begin);
  parts.visit(begin, end, [&](std::uint64_t from, std::uint64_t to, const DirtyPart& part) {
    slice->inline_data.append(reinterpret_cast<const char*>(part.extent->data() + part.from),
                              to - from);
    if (!part.extent->slice) slice->extents.push_back(part.extent);
    part.extent->slice = slice;
    part.extent->open = false;
  });
  slice->stored = slice->length = end - begin;
  slice->closed = true;
  slice->in_flight = 1;
  loose_.clear();
  jobs.push_back({slice, 0, {}, {}});
  return true;
}

void DirtyFile::drop(const std::shared_ptr<PendingSlice>& slice) {
  parts.erase_if(slice->begin, slice->begin + slice->stored,
                 [&](std::uint64_t, std::uint64_t, const DirtyPart& part) {
                   return part.extent->slice == slice;
                 });
  for (const auto& extent : slice->extents) {
    extent->forget();
    extent->slice = nullptr;  // of an extent that shows nowhere: cuts the cycle
  }
  slice->extents.clear();
  slice->dropped = slice->closed = true;
  std::erase(slices, slice);
  length = parts.end();
}

void DirtyFile::drop_all() {
  while (!slices.empty()) drop(slices.back());
  for (const auto& [begin, part] : parts.ranges()) part.value.extent->forget();
  parts = {};
  loose_.clear();
  length = 0;
  ready_bytes = 0;
  kill_privileges = false;
  dirty_since = Nanoseconds(0);
}

void DirtyFile::cut_record(Extent& extent, std::uint64_t new_length) {
  if (!extent.recorded || extent.offset + extent.length <= new_length) return;
  extent.open = false;
  extent.length = extent.offset < new_length ? new_length - extent.offset : 0;
  arena->set_record_length(extent.record, extent.length);
}

void DirtyFile::cut(std::uint64_t new_length, std::vector<std::shared_ptr<PendingSlice>>& unused) {
  const std::uint64_t end = parts.end();
  // All records, of what is shadowed too: a replay lays them over each other whole.
  for (const auto& [begin, part] : parts.ranges()) cut_record(*part.value.extent, new_length);
  for (const auto& slice : slices) {
    for (const auto& extent : slice->extents) cut_record(*extent, new_length);
  }
  parts.erase(new_length, std::max(end, new_length));
  loose_.erase(loose_.lower_bound(divide_up(new_length, kBlockSize)), loose_.end());
  if (new_length % kBlockSize != 0) {
    const std::uint64_t base = round_down(new_length, kBlockSize);
    const auto at = loose_.find(base / kBlockSize);
    if (at != loose_.end()) at->second = loose_bytes(base, new_length);
  }
  for (const auto& slice : std::vector(slices.begin(), slices.end())) {
    if (slice->begin + slice->length <= new_length) continue;
    slice->closed = true;
    if (slice->begin >= new_length) {
      drop(slice);
      unused.push_back(slice);
    } else {
      slice->length = new_length - slice->begin;
    }
  }
  length = parts.end();
  if (slices.empty()) ready_bytes = 0;
}

}  // namespace starlane::client
