// Which rows the last commits changed, by version: what lets a commit be judged without reading the
// disk. Bounded; what falls out raises the floor below which a transaction can no longer be judged.
// Guarded by the resolver's lock.
#pragma once
#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "kv/engine.h"

namespace starlane::kv::occ {

class RecentWrites {
 public:
  struct Write {
    Version at = 0;
    bool exists = false;  // false: deleted
  };

  RecentWrites(Version floor, std::size_t limit_bytes) : limit_bytes_(limit_bytes), floor_(floor) {}

  void record(std::string_view key, Version at, bool exists);
  /// The newest change of `key`; null: none above the floor.
  const Write* find(std::string_view key) const;
  /// The version that put a row into [first, last) after `since` and left it there; 0: none.
  /// Unknown (as many writes as that are not looked through under a lock) counts as the newest one.
  Version row_in(std::string_view first, std::string_view last, Version since) const;

  /// A transaction that began below it cannot be judged.
  Version floor() const { return floor_; }
  /// Forgets what no snapshot from `oldest` on can ask for, then what is beyond the limit, up to
  /// `visible`.
  void trim(Version oldest, Version visible);
  std::size_t bytes() const { return bytes_; }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view key) const {
      return std::hash<std::string_view>()(key);
    }
  };
  struct Event {
    const std::string* key;  // In `rows_`, where the key stays as long as an event names it.
    Version at;
  };
  void forget_first();

  const std::size_t limit_bytes_;
  Version floor_;
  std::size_t bytes_ = 0;
  std::unordered_map<std::string, Write, Hash, std::equal_to<>> rows_;
  std::deque<Event> events_;
};

}  // namespace starlane::kv::occ
