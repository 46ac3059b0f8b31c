#include <algorithm>

#include "block/target.h"
#include "codec/crc32c.h"

namespace starlane::block {
namespace {

// Through a buffer in pieces, so that each is still in the processor's cache when it is passed on.
constexpr std::uint64_t kPiece = 2_MiB;
static_assert(kPiece % kChecksumUnit == 0);

Status bad_copy() { return Status(Errc::corrupt, "the block fails its check"); }

/// Whether the units in `bytes`, the first of which is number `first`, have the checksums of the
/// entry.
bool units_are_good(const Entry& entry, ByteSpan bytes, std::size_t first) {
  for (std::size_t unit = first; !bytes.empty(); ++unit) {
    const std::size_t n = std::min<std::size_t>(bytes.size(), kChecksumUnit);
    if (crc32c(bytes.first(n)) != entry.checksums[unit]) return false;
    bytes = bytes.subspan(n);
  }
  return true;
}

/// Checksums of a range that begins at `offset` in the block: of whole units the writer's, of parts
/// their own.
std::vector<std::uint32_t> checksums_of(const Entry& entry, std::uint64_t offset, ByteSpan range) {
  std::vector<std::uint32_t> result;
  while (!range.empty()) {
    const std::uint64_t unit = offset / kChecksumUnit;
    const std::uint64_t unit_end =
        std::min<std::uint64_t>((unit + 1) * kChecksumUnit, entry.length);
    const std::size_t n = std::min<std::size_t>(range.size(), unit_end - offset);
    const bool whole = offset == unit * kChecksumUnit && offset + n == unit_end;
    result.push_back(whole ? entry.checksums[unit] : crc32c(range.first(n)));
    range = range.subspan(n);
    offset += n;
  }
  return result;
}

}  // namespace

Result<EntryPtr> Target::find(const BlockId& block) const {
  auto lookup = recent_.find(block);
  switch (lookup.found) {
    case Recent::Found::here:
      return std::move(lookup.entry);
    case Recent::Found::removed:
      return Status(Errc::not_found, "the slice was removed");
    case Recent::Found::no:
      break;
  }
  return index_->find(block);
}

Result<GetBlockReply> Target::get(const GetBlock& request, BulkSink& out) {
  const EntryPtr entry = SL_TRY(find(request.block));
  const std::uint64_t end = std::uint64_t{request.offset} + request.length;
  if (request.length == 0 || end > entry->length) {
    return Status(Errc::invalid, "the range does not lie inside the block");
  }
  auto reply = send(*entry, request, out);
  if (reply.ok()) {
    counters_.gets.fetch_add(1, std::memory_order_relaxed);
    counters_.get_bytes.fetch_add(request.length, std::memory_order_relaxed);
    return reply;
  }
  // A removal meanwhile may have made a hole of it: that is no damage.
  if (const auto again = find(request.block); !again.ok()) return again.status();
  if (reply.code() != Errc::corrupt) return note(reply.status());
  counters_.corrupt.fetch_add(1, std::memory_order_relaxed);
  return reply.status().with("segment " + std::to_string(entry->segment) + ", offset " +
                             std::to_string(entry->offset));
}

Result<GetBlockReply> Target::send(const Entry& entry, const GetBlock& request, BulkSink& out) {
  GetBlockReply reply;
  if (entry.small.empty()) {
    SL_TRY(send_stored(entry, request, out, reply.checksums));
    return reply;
  }
  const ByteSpan block = bytes_of(entry.small);
  if (!units_are_good(entry, block, 0)) return bad_copy();
  const ByteSpan range = block.subspan(request.offset, request.length);
  reply.checksums = checksums_of(entry, request.offset, range);
  SL_TRY(out.write(range));
  return reply;
}

Status Target::send_stored(const Entry& entry, const GetBlock& request, BulkSink& out,
                           std::vector<std::uint32_t>& checksums) {
  const std::uint64_t end = std::uint64_t{request.offset} + request.length;
  const std::uint64_t from = round_down(request.offset, kChecksumUnit);
  const std::uint64_t to = std::min<std::uint64_t>(round_up(end, kChecksumUnit), entry.length);
  const std::size_t unit = from / kChecksumUnit;
  const auto file = SL_TRY(log_.file(entry.segment));
  const std::uint64_t at = entry.offset + entry.payload_offset + from;
  const std::uint64_t length = to - from;
  const bool whole = from == request.offset && to == end;
  const bool checked = !whole || request.check;
  if (const auto memory = out.memory(); memory && whole) {
    const auto bits = reinterpret_cast<std::uintptr_t>(memory->data()) | length;
    if (memory->size() >= length && bits % traits_.alignment == 0) {
      SL_TRY(file->read(at, memory->first(length)));
      if (checked && !units_are_good(entry, memory->first(length), unit)) return bad_copy();
      checksums.assign(entry.checksums.begin() + static_cast<std::ptrdiff_t>(unit),
                       entry.checksums.begin() +
                           static_cast<std::ptrdiff_t>(unit + divide_up(length, kChecksumUnit)));
      out.filled(length);
      return {};
    }
  }
  const auto buffer = buffers_.take();
  for (std::uint64_t piece = from; piece < to; piece += kPiece) {
    const std::uint64_t n = std::min(kPiece, to - piece);
    const ByteSpan units = buffer.span().first(n);
    SL_TRY(file->read(at + (piece - from), buffer.span().first(round_up(n, traits_.alignment))));
    if (checked && !units_are_good(entry, units, piece / kChecksumUnit)) return bad_copy();
    const std::uint64_t begin = std::max<std::uint64_t>(request.offset, piece);
    const ByteSpan range = units.subspan(begin - piece, std::min(end, piece + n) - begin);
    for (const std::uint32_t sum : checksums_of(entry, begin, range)) checksums.push_back(sum);
    SL_TRY(out.write(range));
  }
  return {};
}

Result<bool> Target::is_bad(const BlockId& block, const EntryPtr& entry) {
  if (entry == nullptr) return true;
  const auto file = log_.file(entry->segment);
  const auto buffer = buffers_.take();
  Status status = file.status();
  if (status.ok()) {
    const std::uint64_t length = entry->payload_offset + entry->stored_length;
    const auto record = buffer.span().first(round_up(length, traits_.alignment));
    status = (*file)->read(entry->offset, record);
    if (status.ok()) {
      const ByteSpan payload = record.subspan(entry->payload_offset, entry->stored_length);
      const bool good =
          units_are_good(*entry, payload, 0) && units_are_good(*entry, bytes_of(entry->small), 0);
      if (good) return false;
    }
  }
  if (find(block).code() == Errc::not_found) return false;  // removed meanwhile
  counters_.corrupt.fetch_add(1, std::memory_order_relaxed);
  if (!status.ok()) return note(status);
  return true;
}

}  // namespace starlane::block
