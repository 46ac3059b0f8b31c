// A map that forgets what was used least recently when it is full: in shards, so that threads meet
// seldom. Any thread. Locks: each shard's own, a leaf.
#pragma once
#include <array>
#include <cstddef>
#include <list>
#include <optional>
#include <unordered_map>
#include <utility>

#include "common/mutex.h"

namespace starlane::client {

template <typename Key, typename Value, typename Hash = std::hash<Key>>
class BoundedMap {
 public:
  explicit BoundedMap(std::size_t limit) : shard_limit_(limit / kShards + 1) {}

  std::optional<Value> find(const Key& key) {
    Shard& shard = shard_of(key);
    MutexLock lock(shard.m);
    const auto at = shard.index.find(key);
    if (at == shard.index.end()) return std::nullopt;
    shard.order.splice(shard.order.begin(), shard.order, at->second);
    return at->second->second;
  }

  void put(const Key& key, Value value) {
    Shard& shard = shard_of(key);
    MutexLock lock(shard.m);
    const auto at = shard.index.find(key);
    if (at != shard.index.end()) {
      at->second->second = std::move(value);
      shard.order.splice(shard.order.begin(), shard.order, at->second);
      return;
    }
    shard.order.emplace_front(key, std::move(value));
    shard.index.emplace(key, shard.order.begin());
    if (shard.index.size() <= shard_limit_) return;
    shard.index.erase(shard.order.back().first);
    shard.order.pop_back();
  }

  void erase(const Key& key) {
    Shard& shard = shard_of(key);
    MutexLock lock(shard.m);
    const auto at = shard.index.find(key);
    if (at == shard.index.end()) return;
    shard.order.erase(at->second);
    shard.index.erase(at);
  }

  std::size_t size() {
    std::size_t all = 0;
    for (Shard& shard : shards_) {
      MutexLock lock(shard.m);
      all += shard.index.size();
    }
    return all;
  }

 private:
  static constexpr std::size_t kShards = 32;
  struct Shard {
    Mutex m;
    std::list<std::pair<Key, Value>> order SL_GUARDED_BY(m);  // most recently used first
    std::unordered_map<Key, typename std::list<std::pair<Key, Value>>::iterator, Hash> index
        SL_GUARDED_BY(m);
  };

  Shard& shard_of(const Key& key) { return shards_[(Hash{}(key) >> 7) % kShards]; }

  const std::size_t shard_limit_;
  std::array<Shard, kShards> shards_;
};

}  // namespace starlane::client
