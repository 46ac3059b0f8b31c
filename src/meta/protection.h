// What the flags of an inode forbid (chattr +i and +a), as Linux has it: an immutable one is
// neither changed, named nor unnamed; an append-only one only grows at its end. One question for
// each kind of change; each answers not_permitted or nothing. Pure.
#pragma once
#include <cstdint>

#include "common/status.h"
#include "meta/rows.h"

namespace starlane::meta {

/// Mode, owner, given times, length, extended attributes, a further name, its own removal.
Status may_change(const InodeRow& row);
/// Times that become now.
Status may_touch(const InodeRow& row);
/// Content in [from, ...) of a file whose length is the row's.
Status may_write(const InodeRow& row, std::uint64_t from);
/// A directory gets another entry.
Status may_gain_entry(const InodeRow& directory);
/// An entry of a directory goes, or comes to name something else.
Status may_lose_entry(const InodeRow& directory, const InodeRow& entry);

struct WriteOpen {
  bool append = false;
  bool truncate = false;
};
Status may_open_for_writing(const InodeRow& row, const WriteOpen& open);

}  // namespace starlane::meta
