// The trash of a volume: what was deleted, kept under its last name for a while (B). Its inode,
// slices and attributes stay as they are, without a link; so everything that minds open files
// without a name minds these as well. Inside one transaction of the caller, unless said otherwise.
#pragma once
#include <string>
#include <string_view>

#include "meta/context.h"
#include "meta/links.h"

namespace starlane::meta {

/// How long what is deleted stays in the trash.
std::uint64_t kept_for_ns(const HeadRow& head);

/// Whether what is deleted now goes to the trash. What lived only for moments was a temporary.
bool is_kept(const Change& change, const InodeRow& row);

struct Kept {
  std::string_view name;
  std::uint64_t ready_ns = 0;  // before, an open may be under way
};
/// The last name of `node` goes: lists and counts it. The caller writes the node.
void put_in_trash(Change& change, const Node& node, const Kept& kept);

/// Something in the trash, as the transaction read it.
struct Trashed {
  TrashedKey key;
  TrashedRow row;
  kv::Version version = kv::kAbsent;
};
Result<Trashed> trashed_of(const kv::Row& row);

/// Out of the trash and out of its counts. What becomes of the inode is the caller's.
void take_from_trash(Change& change, const Trashed& trashed);

/// Out of the trash for good: listed as unlinked (U), which is freed when nobody holds it.
void throw_away(Change& change, const Trashed& trashed);

}  // namespace starlane::meta
