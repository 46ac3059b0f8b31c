#include <algorithm>

#include "block/target.h"
#include "codec/crc32c.h"

namespace starlane::block {
namespace {

constexpr std::size_t kSmallRecord = round_up(kHeaderBytes + 4 + kSmallBlock, kPage);

Status check(const PutBlock& request, std::uint64_t size) {
  if (size == 0 || size > kBlockSize) {
    return Status(Errc::invalid, "a block has 1 to " + std::to_string(kBlockSize) + " bytes");
  }
  if (request.unit_checksums.size() != divide_up(size, kChecksumUnit)) {
    return Status(Errc::invalid, "a put needs one checksum for each 64 KiB of the block");
  }
  return {};
}

Status compare(const Entry& have, const PutBlock& request, std::uint64_t size) {
  if (have.length == size && have.checksums == request.unit_checksums) return {};
  return Status(Errc::exists, "another block has this id");
}

}  // namespace

/// The block's bytes in memory; `record` is their record's whole memory if they lie in it.
struct Target::Payload {
  ByteSpan bytes;
  MutableByteSpan record;  // payload at its place, room for the header before; else empty
  BufferPool::Buffer buffer;
};

Status Target::put(const PutBlock& request, BulkSource& data, Deadline deadline) {
  SL_TRY(check(request, data.size()));
  SL_TRY(note(indexer_->wait_for_room(deadline)));
  const auto lookup = recent_.begin_put(request.block);
  switch (lookup.found) {
    case Recent::Found::removed:
      return Status(Errc::fenced, "the slice was removed");
    case Recent::Found::here:
      SL_TRY(compare(*lookup.entry, request, data.size()));
      break;
    case Recent::Found::no:
      SL_TRY(note(put_claimed(request, data)));
      break;
  }
  return request.safety == Safety::durable ? sync() : Status();
}

Status Target::put_claimed(const PutBlock& request, BulkSource& data) {
  const auto give_up = [&](Status status) {
    (void)recent_.end_put(request.block, nullptr);
    return status;
  };
  const auto state = index_->state_of(request.block);
  if (!state.ok()) return give_up(state.status());
  if (state->fenced) return give_up(Status(Errc::fenced, "the slice was removed"));
  if (state->entry != nullptr) return give_up(compare(*state->entry, request, data.size()));
  return store(request, data);
}

Status Target::store(const PutBlock& request, BulkSource& data) {
  alignas(kPage) std::array<std::byte, kSmallRecord> small;
  RecordHeader header;
  header.salt = identity_.salt;
  header.block = request.block;
  Entry& entry = header.entry;
  entry.length = entry.stored_length = static_cast<std::uint32_t>(data.size());
  entry.checksums = request.unit_checksums;
  set_shape(entry);
  const auto give_up = [&](const Status& status) {
    (void)recent_.end_put(request.block, nullptr);
    return status;
  };
  const auto payload = receive(data, small);
  if (!payload.ok()) return give_up(payload.status());
  if (checksum_units(payload->bytes) != entry.checksums) {
    return give_up(Status(Errc::corrupt, "the bytes do not match their checksums"));
  }
  if (const Status space = take_space(entry.record_length); !space.ok()) return give_up(space);
  const auto range = log_.allocate(entry.record_length);
  if (!range.ok()) return give_up(range.status());
  entry.segment = range->segment;
  entry.offset = range->offset;
  header.sequence = log_.next_sequence();
  const Status written = write_record(header, *payload, *range);
  return publish(header, *payload, *range, written);
}

Result<Target::Payload> Target::receive(BulkSource& data, MutableByteSpan small) const {
  const std::uint64_t size = data.size();
  const auto memory = data.memory();
  Payload payload;
  if (size <= kSmallBlock) {
    std::ranges::fill(small, std::byte{0});
    payload.record = small;
    payload.bytes = small.subspan(kHeaderBytes + 4, size);
  } else {
    const auto bits = memory ? reinterpret_cast<std::uintptr_t>(memory->data()) | size : 0;
    if (memory && bits % traits_.alignment == 0) {
      payload.bytes = *memory;
      return payload;
    }
    payload.buffer = buffers_.take();
    payload.record = payload.buffer.span();
    payload.bytes = payload.record.subspan(kPage, size);
    const std::uint64_t end = kPage + size;
    std::ranges::fill(payload.record.first(kPage), std::byte{0});
    std::ranges::fill(payload.record.subspan(end, round_up(end, kPage) - end), std::byte{0});
  }
  const auto at = payload.record.subspan(
      static_cast<std::size_t>(payload.bytes.data() - payload.record.data()), size);
  if (memory)
    std::ranges::copy(*memory, at.begin());
  else
    SL_TRY(data.read(at));
  return payload;
}

Status Target::write_record(const RecordHeader& header, const Payload& payload,
                            const SegmentLog::Range& range) {
  const Entry& entry = header.entry;
  if (payload.record.empty()) {
    alignas(kPage) std::array<std::byte, kPage> first{};
    encode(header, first);
    return range.file->write(range.offset, first, payload.bytes);
  }
  encode(header, payload.record);
  const std::uint64_t end = entry.payload_offset + entry.stored_length;
  return range.file->write(range.offset, payload.record.first(round_up(end, traits_.alignment)));
}

Status Target::publish(const RecordHeader& header, const Payload& payload,
                       const SegmentLog::Range& range, Status written) {
  log_.written(range);
  EntryPtr entry;
  if (written.ok()) {
    auto made = std::make_shared<Entry>(header.entry);
    if (made->length <= kSmallBlock) made->small = text_of(payload.bytes);
    entry = std::move(made);
  }
  const bool wanted = recent_.end_put(header.block, entry);
  if (!written.ok() || !wanted) (void)log_.release(range.segment, range.offset, range.length);
  log_.end_write(range);
  if (!written.ok()) return written;
  if (!wanted) return Status(Errc::fenced, "the slice was removed");
  counters_.puts.fetch_add(1, std::memory_order_relaxed);
  counters_.put_bytes.fetch_add(header.entry.length, std::memory_order_relaxed);
  return {};
}

Status Target::take_space(std::uint64_t bytes) {
  const auto wanted = static_cast<std::int64_t>(bytes);
  if (space_.fetch_sub(wanted, std::memory_order_relaxed) >= wanted) return {};
  for (int attempt = 0; attempt < 2; ++attempt) {
    const DiskSpace space = SL_TRY(disk_->space());
    const std::uint64_t reserve = std::min(tuning_.reserve_bytes, space.capacity_bytes / 10);
    if (space.free_bytes >= reserve + bytes) {
      const std::uint64_t budget = std::min((space.free_bytes - reserve - bytes) / 4, 64_MiB);
      space_.store(static_cast<std::int64_t>(budget), std::memory_order_relaxed);
      return {};
    }
    space_.store(0, std::memory_order_relaxed);
    if (attempt == 0) SL_TRY(indexer_->write_now());  // removed slices may still hold space
  }
  return Status(Errc::no_space, "the block target is full");
}

}  // namespace starlane::block
