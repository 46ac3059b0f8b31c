#include "block/replay.h"

#include <algorithm>

#include "codec/crc32c.h"

namespace starlane::block {

/// A part of a segment in memory.
struct Replay::Window {
  FileCache::FilePtr file;
  std::uint64_t segment = 0;
  std::uint64_t file_size = 0;
  std::uint64_t begin = 0;
  ByteSpan bytes;
  MutableByteSpan memory;

  /// Bytes [at, at + length), from memory if they are there. Empty when the file ends before.
  Result<ByteSpan> get(std::uint64_t at, std::uint64_t length, std::uint64_t alignment) {
    if (at + length > file_size) return ByteSpan();
    if (at < begin || at + length > begin + bytes.size()) {
      const std::uint64_t n = std::min<std::uint64_t>(memory.size(), file_size - at);
      const std::uint64_t whole =
          round_down(n, alignment);  // a tail that is no page holds no record
      if (whole < length) return ByteSpan();
      bytes = {};
      SL_TRY(file->read(at, memory.first(whole)));
      begin = at;
      bytes = memory.first(whole);
    }
    return bytes.subspan(at - begin, length);
  }
};

Replay::Replay(SegmentLog& log, Index& index, Recent& recent, Indexer& indexer, BufferPool& buffers,
               std::uint64_t salt, std::uint64_t alignment)
    : log_(log),
      index_(index),
      recent_(recent),
      indexer_(indexer),
      buffers_(buffers),
      salt_(salt),
      alignment_(alignment) {}

Result<ReplayResult> Replay::run() {
  for (const SliceKey& slice : SL_TRY(index_.pending_removals())) (void)recent_.remove(slice);
  for (const auto& scan : log_.to_scan()) {
    SL_TRY(this->scan(scan.segment, scan.from));
  }
  SL_TRY(indexer_.write_now());
  return result_;
}

Result<std::optional<RecordHeader>> Replay::record_at(Window& window, std::uint64_t at) {
  const std::optional<RecordHeader> no_record;
  const ByteSpan page = SL_TRY(window.get(at, kPage, alignment_));
  if (page.empty()) return no_record;
  auto header = decode(page);
  if (header.code() == Errc::unsupported) return header.status();
  if (!header.ok() || header->salt != salt_ || header->entry.segment != window.segment ||
      header->entry.offset != at) {
    return no_record;
  }
  const Entry& entry = header->entry;
  // Without O_DIRECT the padding behind a payload is not written.
  const std::uint64_t need = round_up(entry.payload_offset + entry.stored_length, alignment_);
  const ByteSpan record = SL_TRY(window.get(at, need, alignment_));
  if (record.empty()) return no_record;
  const ByteSpan payload = record.subspan(entry.payload_offset, entry.stored_length);
  if (checksum_units(payload) != entry.checksums) return no_record;
  return std::optional<RecordHeader>(std::move(*header));
}

Status Replay::scan(std::uint64_t segment, std::uint64_t from) {
  auto buffer = buffers_.take();
  Window window;
  window.file = SL_TRY(log_.file(segment));
  window.segment = segment;
  window.file_size = SL_TRY(window.file->size());
  window.memory = buffer.span();
  // What a killed process wrote may lie in the kernel's memory only. No sync of ours would cover
  // it, and the index is about to say that it is there.
  if (window.file_size > from) SL_TRY(window.file->sync());
  std::uint64_t at = from, end = from, sequence = 0;
  log_.scanned_to(segment, end, sequence);
  while (at + kHeaderBytes <= window.file_size) {
    const auto header = SL_TRY(record_at(window, at));
    if (!header) {
      const ByteSpan page = SL_TRY(window.get(at, kPage, alignment_));
      const bool zero = std::ranges::all_of(page, [](std::byte b) { return b == std::byte{0}; });
      if (!zero) result_.torn_bytes += kPage;
      at += kPage;
      continue;
    }
    if (end != at) SL_TRY(log_.release(segment, end, at - end));
    const Entry& entry = header->entry;
    const ByteSpan payload = SL_TRY(window.get(
        at, round_up(entry.payload_offset + entry.stored_length, alignment_), alignment_));
    SL_TRY(take(*header, payload.subspan(entry.payload_offset, entry.stored_length)));
    sequence = std::max(sequence, header->sequence);
    end = at += entry.record_length;
    log_.scanned_to(segment, end, sequence);
    // Many records are indexed as the scan goes on, so that memory stays bounded.
    SL_TRY(indexer_.write_if_much());
  }
  if (window.file_size > end) SL_TRY(window.file->truncate(end));
  return {};
}

Status Replay::take(const RecordHeader& header, ByteSpan payload) {
  return header.kind == RecordKind::fences ? take_fences(payload) : take_block(header, payload);
}

Status Replay::take_fences(ByteSpan payload) {
  IndexBatch batch;
  bool any = false;
  for (; payload.size() >= 16; payload = payload.subspan(16)) {
    const SliceKey slice{BranchId(load_little<std::uint64_t>(payload.data())),
                         SliceId(load_little<std::uint64_t>(payload.data() + 8))};
    bool pending = false;
    if (SL_TRY(index_.is_fenced(slice, pending))) continue;
    batch.fence(slice, true);  // the index was lost, and with it this fence
    (void)recent_.remove(slice);
    any = true;
  }
  return any ? index_.apply(batch) : Status();
}

Status Replay::take_block(const RecordHeader& header, ByteSpan payload) {
  const Entry& found = header.entry;
  const auto state = SL_TRY(index_.state_of(header.block));
  const auto same_place = [&](const EntryPtr& other) {
    return other->segment == found.segment && other->offset == found.offset;
  };
  if (!state.fenced && state.entry != nullptr && same_place(state.entry)) return {};
  const auto lookup = recent_.begin_put(header.block);
  if (lookup.found == Recent::Found::here && same_place(lookup.entry)) return {};
  const bool dead = state.fenced || state.entry != nullptr || lookup.found != Recent::Found::no;
  if (dead) {
    if (lookup.found == Recent::Found::no) (void)recent_.end_put(header.block, nullptr);
    ++result_.dead_records;
    return log_.release(found.segment, found.offset, found.record_length);
  }
  Entry entry = found;
  if (entry.length <= kSmallBlock) entry.small = text_of(payload);
  (void)recent_.end_put(header.block, std::make_shared<Entry>(std::move(entry)));
  ++result_.blocks;
  return {};
}

}  // namespace starlane::block
