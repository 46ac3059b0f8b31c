#include "meta/protection.h"

namespace starlane::meta {
namespace {

bool immutable(const InodeRow& row) { return (row.flags & kImmutable) != 0; }
bool append_only(const InodeRow& row) { return (row.flags & kAppendOnly) != 0; }

Status is_immutable() {
  return {Errc::not_permitted, "it is immutable (chattr -i allows changes)"};
}
Status is_append_only() {
  return {Errc::not_permitted, "it only grows at its end (chattr -a allows more)"};
}

}  // namespace

Status may_change(const InodeRow& row) {
  if (immutable(row)) return is_immutable();
  if (append_only(row)) return is_append_only();
  return {};
}

Status may_touch(const InodeRow& row) { return immutable(row) ? is_immutable() : Status(); }

Status may_write(const InodeRow& row, std::uint64_t from) {
  if (immutable(row)) return is_immutable();
  if (append_only(row) && from < row.length) return is_append_only();
  return {};
}

Status may_gain_entry(const InodeRow& directory) { return may_touch(directory); }

Status may_lose_entry(const InodeRow& directory, const InodeRow& entry) {
  SL_TRY(may_change(directory));
  return may_change(entry);
}

Status may_open_for_writing(const InodeRow& row, const WriteOpen& open) {
  if (immutable(row)) return is_immutable();
  if (append_only(row) && (open.truncate || !open.append)) return is_append_only();
  return {};
}

}  // namespace starlane::meta
