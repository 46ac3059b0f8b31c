#include "block/recent.h"

namespace starlane::block {
namespace {

constexpr std::uint64_t kRemovalBytes = 128;  // of two set nodes

SliceKey slice_of(const BlockId& block) { return {block.owner, block.slice}; }

std::uint64_t memory_of(const Entry& entry) {
  return sizeof(Entry) + 128 + 4 * entry.checksums.size() + entry.small.size();
}

}  // namespace

Recent::Shard& Recent::shard_of(const SliceKey& slice) {
  return shards_[mix64(slice.slice.value ^ mix64(slice.owner.value)) % shards_.size()];
}
const Recent::Shard& Recent::shard_of(const SliceKey& slice) const {
  return const_cast<Recent*>(this)->shard_of(slice);
}

void Recent::count(const Entry& entry, int sign) {
  const auto add = [sign](std::atomic<std::uint64_t>& to, std::uint64_t n) {
    sign > 0 ? to.fetch_add(n, std::memory_order_relaxed)
             : to.fetch_sub(n, std::memory_order_relaxed);
  };
  add(bytes_, memory_of(entry));
  add(blocks_, 1);
  add(payload_, entry.length);
}

Recent::Lookup Recent::look(const Shard& shard, const BlockId& block) {
  const SliceKey slice = slice_of(block);
  if (shard.removed.contains(slice) || shard.removed_frozen.contains(slice)) {
    return {Found::removed, nullptr};
  }
  for (const auto* map : {&shard.active, &shard.frozen}) {
    if (const auto it = map->find(block); it != map->end()) return {Found::here, it->second};
  }
  return {};
}

Recent::Lookup Recent::find(const BlockId& block) const {
  const Shard& shard = shard_of(slice_of(block));
  MutexLock lock(shard.m);
  return look(shard, block);
}

Recent::Lookup Recent::begin_put(const BlockId& block) {
  Shard& shard = shard_of(slice_of(block));
  MutexLock lock(shard.m);
  while (shard.puts.contains(block)) shard.put_ended.wait(shard.m);
  Lookup lookup = look(shard, block);
  if (lookup.found == Found::no) shard.puts.emplace(block, false);
  return lookup;
}

bool Recent::end_put(const BlockId& block, EntryPtr entry) {
  Shard& shard = shard_of(slice_of(block));
  MutexLock lock(shard.m);
  const auto it = shard.puts.find(block);
  SL_CHECK(it != shard.puts.end());
  const bool refused = it->second;
  shard.puts.erase(it);
  shard.put_ended.notify_all();
  if (refused || entry == nullptr) return !refused;
  count(*entry, 1);
  shard.active.emplace(block, std::move(entry));
  return true;
}

std::vector<std::pair<BlockId, EntryPtr>> Recent::remove(const SliceKey& slice) {
  Shard& shard = shard_of(slice);
  const BlockId first{slice.owner, slice.slice, 0}, last{slice.owner, slice.slice, UINT32_MAX};
  std::vector<std::pair<BlockId, EntryPtr>> dropped;
  MutexLock lock(shard.m);
  if (shard.removed.insert(slice).second)
    bytes_.fetch_add(kRemovalBytes, std::memory_order_relaxed);
  for (auto it = shard.puts.lower_bound(first); it != shard.puts.end() && it->first <= last; ++it) {
    it->second = true;
  }
  auto it = shard.active.lower_bound(first);
  while (it != shard.active.end() && it->first <= last) {
    count(*it->second, -1);
    dropped.emplace_back(it->first, std::move(it->second));
    it = shard.active.erase(it);
  }
  return dropped;
}

Recent::Frozen Recent::freeze() {
  Frozen result;
  for (Shard& shard : shards_) {
    MutexLock lock(shard.m);
    SL_CHECK(shard.frozen.empty() && shard.removed_frozen.empty());
    shard.frozen.swap(shard.active);
    shard.removed_frozen.swap(shard.removed);
    result.blocks.insert(result.blocks.end(), shard.frozen.begin(), shard.frozen.end());
    result.removed.insert(result.removed.end(), shard.removed_frozen.begin(),
                          shard.removed_frozen.end());
  }
  return result;
}

void Recent::thaw() {
  for (Shard& shard : shards_) {
    std::map<BlockId, EntryPtr> gone;  // destroyed after the lock is given back
    MutexLock lock(shard.m);
    gone.swap(shard.frozen);
    for (const auto& [block, entry] : gone) count(*entry, -1);
    bytes_.fetch_sub(kRemovalBytes * shard.removed_frozen.size(), std::memory_order_relaxed);
    shard.removed_frozen.clear();
  }
}

}  // namespace starlane::block
