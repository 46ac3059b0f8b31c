#include "cli/role_states.h"

#include <fstream>

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

}  // namespace

json role_states(const wire::Site& site) {
  json roles = json::object();
  for (const char* role : {"meta", "store", "keeper", "mount"}) {
    std::ifstream in(site.state_file(role));
    json state = json::parse(in, nullptr, false);
    if (state.is_object()) roles[role] = std::move(state);
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
