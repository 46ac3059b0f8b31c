#include "meta/trash.h"

namespace starlane::meta {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

void count(Change& change, std::int64_t bytes, std::int64_t inodes) {
  if (bytes != 0)
    change.t.add(accumulator_key(change.branch(), InodeId{}, What::trash_bytes), bytes);
  change.t.add(accumulator_key(change.branch(), InodeId{}, What::trash_inodes), inodes);
}

}  // namespace

std::uint64_t kept_for_ns(const HeadRow& head) { return head.trash_seconds * kSecond; }

bool is_kept(const Change& change, const InodeRow& row) {
  if (change.head.trash_seconds == 0) return false;
  return change.now_ns >= to_ns(row.btime) + change.head.trash_min_age_seconds * kSecond;
}

void put_in_trash(Change& change, const Node& node, const Kept& kept) {
  TrashedRow row{change.header(), change.access.session, kept.ready_ns, node.row.bytes,
                 std::string(kept.name)};
  change.t.put(trashed_key(change.branch(), change.now_ns, node.inode), row.encode());
  count(change, static_cast<std::int64_t>(row.bytes), 1);
}

Result<Trashed> trashed_of(const kv::Row& row) {
  return Trashed{SL_TRY(parse_trashed_key(row.key)), SL_TRY(TrashedRow::decode(row.value)),
                 row.version};
}

void take_from_trash(Change& change, const Trashed& trashed) {
  const std::string key = trashed_key(change.branch(), trashed.key.deleted_ns, trashed.key.inode);
  change.t.expect(key, trashed.version);
  change.t.del(key);
  count(change, -static_cast<std::int64_t>(trashed.row.bytes), -1);
}

void throw_away(Change& change, const Trashed& trashed) {
  take_from_trash(change, trashed);
  change.t.put(unlinked_key(change.branch(), trashed.row.ready_ns, trashed.key.inode),
               UnlinkedRow{change.header(), trashed.row.by}.encode());
}

}  // namespace starlane::meta
