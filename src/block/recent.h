// What happened since the index was last written: blocks that are in segments but not in the index
// yet, slices removed meanwhile, and puts that are under way. Its contents move on in one
// direction, active -> frozen -> index, so that a reader who looks in this order misses nothing.
// Any thread; shards by slice, locks held for moments only.
#pragma once
#include <array>
#include <atomic>
#include <map>
#include <set>
#include <vector>

#include "block/index.h"
#include "common/mutex.h"

namespace starlane::block {

class Recent {
 public:
  enum class Found : std::uint8_t {
    here,     // `entry` is set
    removed,  // with its slice
    no,       // ask the index
  };
  struct Lookup {
    Found found = Found::no;
    EntryPtr entry;
  };
  Lookup find(const BlockId& block) const;

  /// Claims a block for one put; waits while another put has it. Every `no` must be followed by
  /// end_put.
  Lookup begin_put(const BlockId& block);
  /// Publishes `entry`, or gives up with null. False when the slice was removed since begin_put:
  /// nothing is published then.
  bool end_put(const BlockId& block, EntryPtr entry);

  /// Forgets the slice's blocks and refuses puts of it that are under way. The fence is in the
  /// index already, so later ones find it there. Returns blocks that will never be indexed.
  std::vector<std::pair<BlockId, EntryPtr>> remove(const SliceKey& slice);

  /// What one write of the index has to carry.
  struct Frozen {
    std::vector<std::pair<BlockId, EntryPtr>> blocks;
    std::vector<SliceKey> removed;
    bool empty() const { return blocks.empty() && removed.empty(); }
  };
  /// Moves active to frozen, which must be empty. thaw() drops it once the index has it.
  Frozen freeze();
  void thaw();

  /// About how much memory active and frozen take.
  std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  std::uint64_t blocks() const { return blocks_.load(std::memory_order_relaxed); }
  std::uint64_t payload_bytes() const { return payload_.load(std::memory_order_relaxed); }

 private:
  struct Shard {
    mutable Mutex m;
    CondVar put_ended;
    std::map<BlockId, EntryPtr> active SL_GUARDED_BY(m);
    std::map<BlockId, EntryPtr> frozen SL_GUARDED_BY(m);
    std::set<SliceKey> removed SL_GUARDED_BY(m);
    std::set<SliceKey> removed_frozen SL_GUARDED_BY(m);
    std::map<BlockId, bool> puts SL_GUARDED_BY(m);  // true: refused, its slice was removed
  };

  static Lookup look(const Shard& shard, const BlockId& block) SL_REQUIRES(shard.m);
  Shard& shard_of(const SliceKey& slice);
  const Shard& shard_of(const SliceKey& slice) const;
  void count(const Entry& entry, int sign);

  std::array<Shard, 16> shards_;
  std::atomic<std::uint64_t> bytes_ = 0, blocks_ = 0, payload_ = 0;  // statistics: no pair
};

}  // namespace starlane::block
