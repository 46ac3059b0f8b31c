#include "keeper/merger.h"

#include <algorithm>

namespace starlane::keeper {
namespace {

constexpr std::size_t kMaxRuns = 64;  // what one reservation gives

void fill_on(const Call& call, const pb::LongChunk& chunk, pb::On* on) {
  on->set_session(call.session.value);
  on->set_branch(chunk.branch());
}

std::uint64_t bytes_of_runs(const std::vector<MergedRun>& runs) {
  std::uint64_t bytes = 0;
  for (const MergedRun& run : runs) bytes += run.length;
  return bytes;
}

}  // namespace

Result<Merger::Outcome> Merger::merge(const Call& call, const pb::LongChunk& chunk) {
  pb::FileMapRequest ask;
  fill_on(call, chunk, ask.mutable_on());
  ask.set_inode(chunk.inode());
  ask.set_first_chunk(chunk.chunk());
  ask.set_chunks(1);
  pb::FileMapReply map;
  const Status asked = meta_.file_map(call, ask, &map);
  if (asked.code() == Errc::not_found || asked.code() == Errc::stale_handle) return Outcome{};
  SL_TRY(asked);
  if (map.frozen() || map.chunks_size() == 0) return Outcome{};
  const EntryList& entries = map.chunks(0).entries();
  SL_TRY(check_entries(entries));
  const std::vector<MergedRun> runs = plan_merge(entries, kMaxRuns);
  if (!chunk.wasteful() && runs.size() >= static_cast<std::size_t>(entries.size()))
    return Outcome{};

  const std::vector<pb::NewSlice> slices = SL_TRY(write_runs(call, chunk, entries, runs));
  SL_TRY(blocks_.sync_all(call));  // bytes that were durable stay so
  pb::ReplaceChunkRequest replace;
  fill_on(call, chunk, replace.mutable_on());
  replace.set_inode(chunk.inode());
  replace.set_chunk(chunk.chunk());
  for (const pb::SliceEntry& entry : entries) *replace.add_replaced() = entry;
  for (const pb::NewSlice& slice : slices) *replace.add_slices() = slice;
  pb::Attributes attributes;
  const Status replaced = meta_.replace_chunk(call, replace, &attributes);
  if (replaced.code() == Errc::stale || replaced.code() == Errc::not_found) return Outcome{};
  SL_TRY(replaced);
  abandoned_ -= slices.size();
  return Outcome{true, bytes_of_runs(runs), static_cast<std::uint32_t>(entries.size()),
                 static_cast<std::uint32_t>(runs.size())};
}

Result<std::vector<pb::NewSlice>> Merger::write_runs(const Call& call, const pb::LongChunk& chunk,
                                                     const EntryList& entries,
                                                     const std::vector<MergedRun>& runs) {
  std::vector<pb::NewSlice> slices;
  if (runs.empty()) return slices;
  pb::ReserveSlicesRequest reserve;
  reserve.set_session(call.session.value);
  reserve.set_branch(chunk.branch());
  reserve.set_count(static_cast<std::uint32_t>(runs.size()));
  pb::ReserveSlicesReply reserved;
  SL_TRY(meta_.reserve_slices(call, reserve, &reserved));
  abandoned_ += reserved.count();
  if (reserved.count() < runs.size()) {
    return Status(Errc::protocol,
                  "the metadata server reserved fewer slices than it was asked for");
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const SliceName name{BranchId(chunk.branch()), SliceId(reserved.first() + i)};
    SL_TRY(write_run(call, name, entries, runs[i]));
    pb::NewSlice slice;
    slice.set_chunk(chunk.chunk());
    slice.set_batch(reserved.batch());
    pb::SliceEntry* entry = slice.mutable_entry();
    entry->set_position(runs[i].position);
    entry->set_length(runs[i].length);
    entry->set_kind(pb::SliceEntry::DATA);
    entry->set_slice(name.slice.value);
    entry->set_owner(name.owner.value);
    entry->set_placement_epoch(blocks_.map().epoch);
    entry->set_slice_length(runs[i].length);
    slices.push_back(std::move(slice));
  }
  return slices;
}

Status Merger::write_run(const Call& call, const SliceName& name, const EntryList& entries,
                         const MergedRun& run) {
  std::vector<std::byte> buffer(std::min<std::uint64_t>(run.length, kBlockSize));
  for (std::uint32_t index = 0; index < blocks_in(run.length); ++index) {
    const MutableByteSpan block = MutableByteSpan(buffer).first(block_length(run.length, index));
    SL_TRY(fill_block(call, entries, run, std::uint64_t{index} * kBlockSize, block));
    SL_TRY(blocks_.put(call, {name.owner, name.slice, index}, block));
  }
  return {};
}

// begin: of the block, in the run.
Status Merger::fill_block(const Call& call, const EntryList& entries, const MergedRun& run,
                          std::uint64_t begin, MutableByteSpan block) {
  std::fill(block.begin(), block.end(), std::byte{0});
  const std::uint64_t end = begin + block.size();
  for (const SeenPiece& piece : run.pieces) {
    const std::uint64_t piece_begin = piece.position - run.position;
    const std::uint64_t from = std::max(begin, piece_begin);
    const std::uint64_t to = std::min(end, piece_begin + piece.length);
    if (from >= to) continue;
    const pb::SliceEntry& entry = entries[static_cast<int>(piece.entry)];
    const std::uint64_t in_slice =
        std::uint64_t{entry.offset()} + piece.skip + (from - piece_begin);
    const MutableByteSpan out = block.subspan(from - begin, to - from);
    if (entry.kind() == pb::SliceEntry::INLINE) {
      const ByteSpan held = bytes_of(entry.inline_data()).subspan(in_slice, out.size());
      std::copy(held.begin(), held.end(), out.begin());
    } else {
      SL_TRY(blocks_.read(call, {BranchId(entry.owner()), SliceId(entry.slice())}, in_slice, out));
    }
  }
  return {};
}

}  // namespace starlane::keeper
