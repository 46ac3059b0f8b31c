#include "client/blocks/map_source.h"

#include <algorithm>

#include "client/blocks/patience.h"

namespace starlane::client {
namespace {

Result<TargetState> state_of(const std::string& name) {
  if (name == "up" || name.empty()) return TargetState::up;
  if (name == "down") return TargetState::down;
  if (name == "draining") return TargetState::draining;
  return Status(Errc::protocol,
                "the cluster map has a target in the unknown state \"" + name + "\"");
}

Result<ClusterMap> map_of(const pb::ClusterMap& message) {
  ClusterMap map;
  map.epoch = message.epoch();
  for (const pb::Target& from : message.targets()) {
    Target& target = map.targets.emplace_back();
    target.id = TargetId(from.id());
    target.weight = from.weight();
    target.endpoint = from.endpoint();
    target.state = SL_TRY(state_of(from.state()));
    target.failure_domain = from.domain();
  }
  std::ranges::sort(map.targets, {}, &Target::id);
  SL_TRY(validate(map));
  return map;
}

}  // namespace

Result<std::shared_ptr<const ClusterMap>> MapSource::get(const Interrupts::Scope& scope) {
  {
    MutexLock lock(m_);
    if (map_) return map_;
  }
  std::shared_ptr<const ClusterMap> map;
  SL_TRY(with_patience(scope, "cluster map", [&] {
    auto asked = ask();
    if (asked.ok()) map = *asked;
    return asked.status();
  }));
  return map;
}

Result<std::shared_ptr<const ClusterMap>> MapSource::newer(std::shared_ptr<const ClusterMap> seen) {
  {
    MutexLock lock(m_);
    if (map_ && map_->epoch != seen->epoch) return map_;
  }
  auto asked = ask();
  if (!asked.ok() && is_passing(asked.code())) return seen;
  return asked;
}

Result<std::shared_ptr<const ClusterMap>> MapSource::ask() {
  pb::ClusterMap reply;
  Call call;
  call.deadline = try_deadline(0);
  SL_TRY(meta_.cluster_map(call, pb::Empty(), &reply));
  auto map = std::make_shared<const ClusterMap>(SL_TRY(map_of(reply)));
  MutexLock lock(m_);
  if (!map_ || map->epoch >= map_->epoch) map_ = map;
  return map_;
}

}  // namespace starlane::client
