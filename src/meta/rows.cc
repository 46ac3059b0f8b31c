#include "meta/rows.h"

#include <algorithm>
#include <unordered_map>

namespace starlane::meta {
namespace {

constexpr std::uint32_t kMaxNlink = 1u << 31;
constexpr std::size_t kTrashSettingsSize = 8;

bool known_type(std::uint32_t type) {
  switch (type) {
    case 1:
    case 2:
    case 4:
    case 6:
    case 8:
    case 10:
    case 12:
      return true;
    default:
      return false;
  }
}

bool sound(const Entry& e) {
  if (e.length == 0 || e.position > kChunkSize || e.length > kChunkSize - e.position) return false;
  switch (e.kind) {
    case SliceKind::zero:
      return true;
    case SliceKind::inline_bytes:
      if (e.slice_length > kInlineLimit) return false;
      [[fallthrough]];
    case SliceKind::data:
    case SliceKind::origin:
      return e.slice_length <= kChunkSize && e.offset <= e.slice_length &&
             e.length <= e.slice_length - e.offset;
  }
  return false;
}

}  // namespace

Result<InodeRow> InodeRow::decode(std::string_view value) {
  InodeRow row = SL_TRY(decode_row<InodeRow>(value, "inode"));
  if (!known_type(row.mode >> 12) || row.nlink > kMaxNlink) return damaged("inode");
  return row;
}

Result<EntryRow> EntryRow::decode(std::string_view value) {
  EntryRow row = SL_TRY(decode_row<EntryRow>(value, "directory entry"));
  if (!known_type(row.type) || !row.inode || row.inode.value >= kInodeLimit)
    return damaged("directory entry");
  return row;
}

std::string_view SlicesRow::inline_of(SliceId slice) const {
  for (const Inline& one : inlines) {
    if (one.slice == slice) return one.bytes;
  }
  return {};
}

std::string SlicesRow::encode() const {
  RowEncoder encoder(header, kRowHeaderSize + 4 + entries.size() * kEntrySize);
  encoder(static_cast<std::uint32_t>(entries.size()));
  for (const Entry& entry : entries) Entry::fields(entry, encoder);
  std::vector<SliceId> written;
  for (const Entry& entry : entries) {
    if (entry.kind != SliceKind::inline_bytes) continue;
    if (std::find(written.begin(), written.end(), entry.slice) != written.end()) continue;
    written.push_back(entry.slice);
    const std::string_view bytes = inline_of(entry.slice);
    SL_CHECK(bytes.size() == entry.slice_length);
    encoder.bytes(bytes);
  }
  return encoder.take();
}

Result<SlicesRow> SlicesRow::decode(std::string_view value) {
  RowDecoder decoder(value);
  SlicesRow row;
  row.header = decoder.header;
  std::uint32_t count = 0;
  decoder(count);
  if (!decoder.ok() || count > value.size() / kEntrySize) return damaged("chunk");
  row.entries.resize(count);
  for (Entry& entry : row.entries) {
    Entry::fields(entry, decoder);
    if (!decoder.ok() || !sound(entry)) return damaged("chunk");
  }
  std::unordered_map<SliceId, std::uint32_t> seen;
  for (const Entry& entry : row.entries) {
    if (entry.kind != SliceKind::inline_bytes) continue;
    const auto [at, added] = seen.emplace(entry.slice, entry.slice_length);
    if (at->second != entry.slice_length) return damaged("chunk");
    if (added) row.inlines.push_back({entry.slice, std::string(decoder.bytes(entry.slice_length))});
  }
  if (!decoder.done()) return damaged("chunk");
  return row;
}

std::string XattrRow::encode() const {
  RowEncoder encoder(header, kRowHeaderSize + value.size());
  encoder.bytes(value);
  return encoder.take();
}

Result<XattrRow> XattrRow::decode(std::string_view value) {
  RowDecoder decoder(value);
  XattrRow row{decoder.header, std::string(decoder.rest())};
  if (!decoder.done()) return damaged("extended attribute");
  return row;
}

Result<DeadRow> DeadRow::decode(std::string_view value) {
  return decode_row<DeadRow>(value, "dead reference");
}

Result<UnlinkedRow> UnlinkedRow::decode(std::string_view value) {
  return decode_row<UnlinkedRow>(value, "unlinked file");
}

std::string TrashedRow::encode() const {
  RowEncoder encoder(header, kRowHeaderSize + 24 + name.size());
  encoder(by, ready_ns, bytes);
  encoder.bytes(name);
  return encoder.take();
}

Result<TrashedRow> TrashedRow::decode(std::string_view value) {
  RowDecoder decoder(value);
  TrashedRow row;
  row.header = decoder.header;
  decoder(row.by, row.ready_ns, row.bytes);
  row.name = decoder.rest();
  if (!decoder.done() || row.name.empty()) return damaged("trash");
  return row;
}

Result<ReservedRow> ReservedRow::decode(std::string_view value) {
  ReservedRow row = SL_TRY(decode_row<ReservedRow>(value, "reservation"));
  if (row.count == 0 || row.count > 64) return damaged("reservation");
  return row;
}

std::string OutcomeRow::encode() const {
  RowEncoder encoder(header, kRowHeaderSize + 2 + reply.size());
  encoder(method);
  encoder.bytes(reply);
  return encoder.take();
}

Result<OutcomeRow> OutcomeRow::decode(std::string_view value) {
  RowDecoder decoder(value);
  OutcomeRow row;
  row.header = decoder.header;
  decoder(row.method);
  row.reply = decoder.rest();
  if (!decoder.done()) return damaged("outcome");
  return row;
}

std::string HeadRow::encode() const {
  HeadRow row = *this;
  row.header.flags |= kTrashSettings;
  return encode_row(row);
}

Result<HeadRow> HeadRow::decode(std::string_view value) {
  const RowHeader header = SL_TRY(decode_header(value, "branch head"));
  std::string whole(value);
  if ((header.flags & kTrashSettings) == 0) whole.append(kTrashSettingsSize, '\0');
  HeadRow row = SL_TRY(decode_row<HeadRow>(whole, "branch head"));
  const bool state = row.state >= BranchState::active && row.state <= BranchState::deleting;
  const bool kind = row.kind == BranchKind::volume || row.kind == BranchKind::image;
  if (!state || !kind || row.epoch == 0 || row.epoch >= (std::uint64_t{1} << 32))
    return damaged("branch head");
  return row;
}

Result<RowHeader> decode_header(std::string_view value, std::string_view what) {
  const RowDecoder decoder(value);
  if (!decoder.ok()) return damaged(what);
  return decoder.header;
}

}  // namespace starlane::meta
