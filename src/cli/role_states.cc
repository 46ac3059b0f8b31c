#include "cli/role_states.h"

#include <algorithm>
#include <fstream>

#include "wire/json_value.h"

namespace starlane::cli {

using nlohmann::json;

namespace {

json target_of(wire::Connection& connection, const pb::Target& target) {
  json out{{"id", target.id()}, {"endpoint", target.endpoint()}, {"state", target.state()}};
  const std::shared_ptr<BlockService> blocks = connection.network().blocks(target.endpoint());
  Call call;
  call.deadline = Deadline::after(std::chrono::seconds(5));
  const auto infos =
      blocks ? blocks->targets(call)
             : Result<std::vector<TargetInfo>>(Errc::invalid, "its endpoint cannot be understood");
  if (!infos.ok()) {
    out["problem"] = infos.status().text();
    return out;
  }
  for (const TargetInfo& info : *infos) {
    if (info.target.value != target.id()) continue;
    out.update({{"capacity_bytes", info.capacity_bytes},
                {"free_bytes", info.free_bytes},
                {"stored_bytes", info.stored_bytes},
                {"blocks", info.blocks},
                {"healthy", info.healthy},
                {"directory", info.directory},
                {"device", info.device}});
  }
  return out;
}

/// What volumes hold, by why it is held.
json usage_of(const pb::ListVolumesReply& volumes) {
  std::uint64_t live = 0, trash = 0, held = 0, escrow = 0;
  for (const pb::Volume& volume : volumes.volumes()) {
    live += volume.live_bytes();
    trash += volume.trash_bytes();
    held += volume.held_bytes();
    escrow += volume.escrow_bytes();
  }
  return {
      {"live_bytes", live}, {"trash_bytes", trash}, {"held_bytes", held}, {"escrow_bytes", escrow}};
}

Status add_scrubs(MetaService& meta, json* targets) {
  pb::ScrubStates states;
  SL_TRY(meta.scrub_states({}, {}, &states));
  for (const pb::ScrubState& state : states.targets()) {
    const bool under_way =
        state.started().seconds() > state.finished().seconds() || !state.cursor().empty();
    for (json& target : *targets)
      if (target.value("id", 0u) == state.target())
        target["scrub"] = {{"under_way", under_way},
                           {"wanted", state.wanted()},
                           {"finished", state.finished().seconds()},
                           {"blocks", state.blocks()},
                           {"bytes", state.bytes()},
                           {"damaged", state.damaged()}};
  }
  return {};
}

bool is_list_of_texts(const json& value) {
  return value.is_array() &&
         std::ranges::all_of(value, [](const json& one) { return one.is_string(); });
}

/// As wire/state_writer writes it: those who show it need not look again.
bool is_sound(const json& state) {
  if (wire::value_in(state, "pid", 0) <= 0) return false;
  const json figures = state.value("figures", json::object());
  if (!figures.is_object() || !is_list_of_texts(state.value("metrics", json::array())))
    return false;
  for (const char* text : {"mountpoint", "passthrough", "bulk"})
    if (figures.contains(text) && !figures[text].is_string()) return false;
  return is_list_of_texts(figures.value("limitations", json::array()));
}

}  // namespace

json role_states(const wire::Site& site) {
  json roles = json::object();
  for (const char* role : {"meta", "store", "keeper", "mount"}) {
    std::ifstream in(site.state_file(role));
    json state = json::parse(in, nullptr, false);
    if (is_sound(state)) roles[role] = std::move(state);
  }
  return roles;
}

Result<json> site_status(wire::Connection& connection) {
  pb::ClusterMap map;
  SL_TRY(connection.meta().cluster_map({}, {}, &map));
  pb::ListVolumesReply volumes;
  SL_TRY(connection.meta().volume_list({}, {}, &volumes));
  pb::ListImagesReply images;
  SL_TRY(connection.meta().image_list({}, {}, &images));
  pb::ListSessionsReply sessions;
  SL_TRY(connection.meta().list_sessions({}, {}, &sessions));
  json out{{"cluster", map.cluster()},          {"map_epoch", map.epoch()},
           {"volumes", volumes.volumes_size()}, {"data_sets", images.images_size()},
           {"targets", json::array()},          {"sessions", json::array()}};
  std::uint64_t stored = 0;
  for (const pb::Target& target : map.targets()) {
    out["targets"].push_back(target_of(connection, target));
    stored += out["targets"].back().value("stored_bytes", std::uint64_t{0});
  }
  out["stored_bytes"] = stored;
  out["usage"] = usage_of(volumes);
  SL_TRY(add_scrubs(connection.meta(), &out["targets"]));
  for (const pb::SessionInfo& session : sessions.sessions())
    out["sessions"].push_back({{"id", session.session()},
                               {"host", session.host()},
                               {"purpose", session.purpose()},
                               {"age_ms", session.age_ms()},
                               {"silent_ms", session.silent_ms()},
                               {"branches", session.branches_size()}});
  return out;
}

}  // namespace starlane::cli
