#include "placement/cluster_map.h"

#include <algorithm>

namespace starlane {

const Target* ClusterMap::find(TargetId id) const {
  const auto at = std::ranges::lower_bound(targets, id, {}, &Target::id);
  return at != targets.end() && at->id == id ? &*at : nullptr;
}

Status validate(const ClusterMap& map) {
  TargetId previous;
  for (const Target& target : map.targets) {
    const std::string name = "target " + std::to_string(target.id.value);
    if (!target.id) return Status(Errc::invalid, "the cluster map has a target without an id");
    if (target.id <= previous) {
      return Status(Errc::invalid, "the cluster map has " + name + " twice or out of order");
    }
    if (target.state > TargetState::draining) {
      return Status(Errc::invalid, "the cluster map has " + name + " in an unknown state");
    }
    previous = target.id;
  }
  return {};
}

}  // namespace starlane
