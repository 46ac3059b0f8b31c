// The bytes of slices on all targets of a cluster map: where the keeper and fsck read, write and
// remove blocks. `use` and everything else belong to one thread; remove_all fans out on a pool of
// its own.
#pragma once
#include <cstdint>
#include <vector>

#include "common/bytes.h"
#include "common/thread_pool.h"
#include "placement/cluster_map.h"
#include "proto/block_service.h"
#include "proto/meta.pb.h"

namespace starlane::keeper {

/// The map as placement wants it. invalid if it cannot be used.
Result<ClusterMap> map_of(const pb::ClusterMap& map);

/// Blocks of a slice of so many bytes.
constexpr std::uint32_t blocks_in(std::uint64_t slice_length) {
  return static_cast<std::uint32_t>(divide_up(slice_length, kBlockSize));
}
/// Length of the block with this index.
constexpr std::uint32_t block_length(std::uint64_t slice_length, std::uint32_t index) {
  const std::uint64_t begin = std::uint64_t{index} * kBlockSize;
  return static_cast<std::uint32_t>(slice_length - begin < kBlockSize ? slice_length - begin
                                                                      : kBlockSize);
}

struct SliceName {
  BranchId owner;
  SliceId slice;
};

class SliceBlocks {
 public:
  /// service: answers for every target of the map; outlives this.
  SliceBlocks(BlockService& service, std::size_t remove_threads);

  void use(ClusterMap map) { map_ = std::move(map); }
  const ClusterMap& map() const { return map_; }

  /// Bytes [offset, offset + out.size()) of a slice, from whichever target has a good copy.
  Status read(const Call& call, const SliceName& name, std::uint64_t offset, MutableByteSpan out);
  /// Whether any target has the block and can read its first byte; an error if one could not be
  /// asked.
  Result<bool> has(const Call& call, const BlockId& block);
  /// On the block's own target, accepted.
  Status put(const Call& call, const BlockId& block, ByteSpan bytes);
  /// Every put that returned, of whomever, is durable on every target.
  Status sync_all(const Call& call);
  /// From every target that may hold a part of them. One Status each, in order; ok: gone
  /// everywhere.
  std::vector<Status> remove_all(const Call& call, const std::vector<SliceName>& names);

 private:
  Status read_block(const Call& call, const BlockId& block, std::uint32_t offset,
                    MutableByteSpan out);
  std::vector<TargetId> by_likelihood(const BlockId& block) const;

  BlockService& service_;
  ClusterMap map_;
  ThreadPool pool_;
};

}  // namespace starlane::keeper
