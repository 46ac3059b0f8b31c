// The accumulators that commits work on: their values after every accepted commit, so that each
// group writes one row an accumulator however many commits changed it. Bounded. Guarded by the
// resolver's lock.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "kv/occ/format.h"

namespace starlane::kv::occ {

struct TotalChange;

class Totals {
 public:
  struct Entry {
    Total total;
    Version at = 0;          // The last accepted commit that changed it.
    std::uint32_t pins = 0;  // Commits that are about to change it.
    bool loaded = false;     // Nobody changes it before it is.
    bool in_group = false;   // Changed by a commit of the next group.
    const std::string* key = nullptr;
  };

  explicit Totals(std::size_t limit) : limit_(limit) {}

  /// The entry of `key`, made (not loaded) if there is none. It stays until unpinned.
  Entry& pin(const std::string& key);
  void unpin(Entry& entry) { --entry.pins; }
  /// Marks a pinned entry as changed by commit `at`.
  void set(Entry& entry, const Total& total, Version at);
  /// The changed entries since the last call, as they are now.
  struct Changed {
    std::string key;
    Total total;
  };
  std::vector<Changed> take_group();
  /// Keeps the table near its limit: drops entries that no commit holds and whose value is in the
  /// storage.
  void trim(Version visible);
  std::size_t size() const { return entries_.size(); }

 private:
  const std::size_t limit_;
  std::unordered_map<std::string, Entry> entries_;
  std::vector<Entry*> group_;
};

/// `total` after `change`, or quota, range (64 bits do not hold it), invalid (a sum used as a
/// greatest).
Result<Total> changed(const Total& total, const TotalChange& change);

}  // namespace starlane::kv::occ
