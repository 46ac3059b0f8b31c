#include "meta/messages.h"

#include <algorithm>

#include "common/bytes.h"

namespace starlane::meta {

Access access_of(const pb::On& on) {
  return {BranchId{on.branch()}, SessionId{on.session()}, on.request(), on.attachment_epoch()};
}

Result<WallTime> time_of(const pb::Time& time) {
  if (time.nanoseconds() >= 1'000'000'000)
    return {Errc::invalid, "a time has 10^9 nanoseconds or more"};
  return WallTime{time.seconds(), time.nanoseconds()};
}

void put_time(const WallTime& time, pb::Time* out) {
  out->set_seconds(time.seconds);
  out->set_nanoseconds(time.nanoseconds);
}

void put_attributes(InodeId inode, const InodeRow& row, const DirectoryTotals& totals,
                    pb::Attributes* out) {
  const bool directory = row.is_directory();
  out->set_inode(inode.value);
  out->set_mode(row.mode);
  const bool linked = row.nlink != 0;
  out->set_nlink(directory && linked ? static_cast<std::uint32_t>(2 + totals.subdirectories)
                                     : row.nlink);
  out->set_uid(row.uid);
  out->set_gid(row.gid);
  out->set_rdev(row.rdev);
  out->set_length(row.length);
  out->set_bytes(row.bytes);
  const bool changed = directory && totals.changed_ns != 0;
  const WallTime change = from_ns(totals.changed_ns);
  put_time(row.atime, out->mutable_atime());
  put_time(changed ? change : row.mtime, out->mutable_mtime());
  put_time(changed ? std::max(row.ctime, change) : row.ctime, out->mutable_ctime());
  put_time(row.btime, out->mutable_btime());
  out->set_version(directory ? row.version + totals.changes : row.version);
  out->set_generation(row.generation);
  out->set_flags(row.flags & (kImmutable | kAppendOnly | kHasXattrs));
  if (directory || row.nlink == 1) out->set_parent(row.parent.value);
  if (directory) out->set_entries(totals.entries);
}

Status read_attributes(kv::Transaction& t, BranchId branch, InodeId inode, const InodeRow& row,
                       pb::Attributes* out) {
  DirectoryTotals totals;
  if (row.is_directory()) totals = SL_TRY(read_totals(t, branch, inode, row));
  put_attributes(inode, row, totals, out);
  return {};
}

void put_entry(const SlicesRow& row, const Entry& entry, pb::SliceEntry* out) {
  out->set_position(entry.position);
  out->set_length(entry.length);
  out->set_offset(entry.offset);
  out->set_kind(static_cast<pb::SliceEntry::Kind>(entry.kind));
  out->set_layout(entry.layout);
  out->set_codec(entry.codec);
  out->set_flags(entry.flags);
  out->set_slice(entry.slice.value);
  out->set_owner(entry.owner.value);
  out->set_placement_epoch(entry.placement_epoch);
  out->set_key_id(entry.key_id);
  out->set_slice_length(entry.slice_length);
  if (entry.kind == SliceKind::inline_bytes) {
    const std::string_view bytes = row.inline_of(entry.slice);
    out->set_inline_data(bytes.data(), bytes.size());
  }
}

Result<Entry> entry_of(const pb::SliceEntry& said) {
  const auto possible = [&said] {
    if (said.length() == 0 || said.length() > kChunkSize) return false;
    if (said.layout() > 255 || said.codec() > 255 || said.placement_epoch() > UINT32_MAX)
      return false;
    if (said.kind() == pb::SliceEntry::ZERO) return true;
    if (said.kind() != pb::SliceEntry::DATA && said.kind() != pb::SliceEntry::INLINE) return false;
    const std::uint64_t limit = said.kind() == pb::SliceEntry::INLINE ? kInlineLimit : kChunkSize;
    return said.slice_length() <= limit && said.offset() <= said.slice_length() &&
           said.length() <= said.slice_length() - said.offset();
  };
  if (!possible())
    return {Errc::invalid, "a slice entry lies outside its slice, or is of no known kind"};
  Entry entry;
  entry.position = said.position();
  entry.length = said.length();
  entry.kind = static_cast<SliceKind>(said.kind());
  if (entry.kind == SliceKind::zero) return entry;
  if (entry.kind == SliceKind::inline_bytes && said.inline_data().size() != said.slice_length()) {
    return {Errc::invalid, "an inline slice's length differs from its content's"};
  }
  entry.offset = said.offset();
  entry.layout = static_cast<std::uint8_t>(said.layout());
  entry.codec = static_cast<std::uint8_t>(said.codec());
  entry.slice = SliceId{said.slice()};
  entry.slice_length = said.slice_length();
  entry.placement_epoch = static_cast<std::uint32_t>(said.placement_epoch());
  entry.key_id = said.key_id();
  return entry;
}

}  // namespace starlane::meta
