// Where a block belongs: weighted rendezvous hashing. Every client, server and keeper computes the
// same answer from the same map, and a changed map moves only what it must. Pure functions; any
// thread.
#pragma once
#include <vector>

#include "common/ids.h"
#include "placement/cluster_map.h"

namespace starlane {

/// Up to `copies` targets of a block, best first, in different failure domains as long as there are
/// any; when domains run out, the rest share the domains that hold the fewest copies. Fewer than
/// `copies` only when the map has fewer targets. Targets that are down are chosen like others (the
/// caller leaves them out), draining and weightless ones are not. choose(n) is the beginning of
/// choose(n + 1). About 10 ns a target and copy.
std::vector<TargetId> choose(const ClusterMap& map, BranchId owner, SliceId slice,
                             std::uint32_t index, std::size_t copies);

namespace placement {

/// The frozen hash of a block and a target: uniform in u64. For tests.
std::uint64_t hash(const BlockId& block, TargetId target);

/// 2^48 * -log2((h | 1) / 2^64) within 1e-6 of it, from integers alone: > 0 and <= 2^54. For tests.
std::uint64_t distance(std::uint64_t h);

}  // namespace placement
}  // namespace starlane
