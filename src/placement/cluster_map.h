// The cluster map: every target, and what a client needs to reach it. A value that carries an
// epoch; each change of the cluster makes a new map with a higher one. Plain data; const access
// from any thread.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/status.h"

namespace starlane {

enum class TargetState : std::uint8_t {
  up = 0,
  down = 1,      // cannot be reached for now: keeps its place, so that a restart moves no data
  draining = 2,  // readable, gets nothing new: the keeper moves its blocks away
};

struct Target {
  TargetId id;
  std::uint32_t weight =
      0;  // share of the data, in any unit that is common to the map (GiB); 0: gets nothing
  std::string endpoint;  // where its server listens
  TargetState state = TargetState::up;
  std::string failure_domain;  // targets of one domain may fail together: host or rack
  friend bool operator==(const Target&, const Target&) = default;
};

struct ClusterMap {
  std::uint64_t epoch = 0;
  std::vector<Target> targets;  // sorted by id

  /// The target with this id, or null. Valid as long as the map is not changed.
  const Target* find(TargetId id) const;
  friend bool operator==(const ClusterMap&, const ClusterMap&) = default;
};

/// Whether a map that was read or received can be used: ids set, unique and sorted, states known.
/// invalid otherwise.
Status validate(const ClusterMap& map);

}  // namespace starlane
