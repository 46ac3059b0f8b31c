// cluster_map and register_targets: which targets there are, and from which epoch on.
#include <algorithm>

#include "meta/members/member_rows.h"
#include "meta/ops/ops.h"

namespace starlane::meta {
namespace {

constexpr int kMaxRegistered = 1'024;
constexpr std::size_t kMaxTargets = 65'536;
constexpr std::size_t kMaxText = 255;
const char* const kStates[] = {"up", "down", "draining"};  // as TargetState

Result<std::uint8_t> state_of(const std::string& name) {
  if (name.empty()) return std::uint8_t{0};
  for (std::uint8_t i = 0; i < std::size(kStates); ++i) {
    if (name == kStates[i]) return i;
  }
  return Status(Errc::invalid, "the state of a target is up, down or draining");
}

Result<TargetRow> row_of(const pb::Target& target) {
  if (target.id() == 0 || target.endpoint().size() > kMaxText ||
      target.domain().size() > kMaxText) {
    return Status(Errc::invalid,
                  "a target has an id that is not 0, and endpoint and domain of at most 255 bytes");
  }
  return TargetRow{
      target.id(),       target.weight(), SL_TRY(state_of(target.state())), target.capacity_bytes(),
      target.endpoint(), target.domain()};
}

Result<MapRow> read_map(kv::Transaction& t, kv::Version* version) {
  const std::optional<kv::Row> row = SL_TRY(t.get(map_key(0)));
  *version = row ? row->version : kv::kAbsent;
  if (!row) return MapRow();
  return MapRow::decode(row->value);
}

void fill_map(const Context& context, const MapRow& map, pb::ClusterMap* out) {
  out->Clear();
  out->set_epoch(map.header.epoch);
  out->set_cluster(context.options.cluster);
  for (const TargetRow& row : map.targets) {
    pb::Target* target = out->add_targets();
    target->set_id(row.id);
    target->set_endpoint(row.endpoint);
    target->set_weight(row.weight);
    target->set_state(row.state < std::size(kStates) ? kStates[row.state] : "down");
    target->set_domain(row.domain);
    target->set_capacity_bytes(row.capacity_bytes);
  }
}

enum class Difference : std::uint8_t { none, capacity, placement };

Difference merge(MapRow& map, const TargetRow& target) {
  const auto at =
      std::lower_bound(map.targets.begin(), map.targets.end(), target.id,
                       [](const TargetRow& row, std::uint32_t id) { return row.id < id; });
  if (at == map.targets.end() || at->id != target.id) {
    map.targets.insert(at, target);
    return Difference::placement;
  }
  TargetRow same_capacity = *at;
  same_capacity.capacity_bytes = target.capacity_bytes;
  const Difference difference = same_capacity != target ? Difference::placement
                                : *at != target         ? Difference::capacity
                                                        : Difference::none;
  *at = target;
  return difference;
}

}  // namespace

Status op_cluster_map(Context& context, const Call&, const pb::Empty&, pb::ClusterMap* reply) {
  return context.read([&](kv::Transaction& t) -> Status {
    kv::Version version = kv::kAbsent;
    const MapRow map = SL_TRY(read_map(t, &version));
    fill_map(context, map, reply);
    return {};
  });
}

// The map of each epoch is kept: a slice is looked for where the map of its birth put it.
Status op_register_targets(Context& context, const Call&, const pb::RegisterTargetsRequest& request,
                           pb::ClusterMap* reply) {
  if (request.targets_size() > kMaxRegistered) {
    return {Errc::invalid, "at most 1024 targets are registered at once"};
  }
  std::vector<TargetRow> targets;
  for (const pb::Target& target : request.targets()) targets.push_back(SL_TRY(row_of(target)));
  const Status registered =
      kv::run(context.engine, kv::Durability::durable, [&](kv::Transaction& t) -> Status {
        kv::Version version = kv::kAbsent;
        MapRow map = SL_TRY(read_map(t, &version));
        Difference difference = Difference::none;
        for (const TargetRow& target : targets)
          difference = std::max(difference, merge(map, target));
        if (map.targets.size() > kMaxTargets)
          return {Errc::no_space, "a cluster has at most 65536 targets"};
        if (difference == Difference::placement) ++map.header.epoch;
        if (difference != Difference::none) {
          t.expect(map_key(0), version);
          t.put(map_key(0), map.encode());
          t.put(map_key(map.header.epoch), map.encode());
        }
        fill_map(context, map, reply);
        return {};
      });
  SL_TRY(registered);
  for (const pb::Target& target : request.targets())
    context.capacity.report(TargetId(target.id()), {target.capacity_bytes(), target.free_bytes()});
  return {};
}

}  // namespace starlane::meta
