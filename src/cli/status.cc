// status: what runs, what it holds, and which fast paths are on.
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/terminal.h"

namespace starlane::cli {
namespace {

using nlohmann::json;

/// What each running role last wrote of itself.
json role_states(const wire::Site& site) {
  json roles = json::object();
  for (const char* role : {"meta", "store", "keeper", "mount"}) {
    std::ifstream in(site.state_file(role));
    json state = json::parse(in, nullptr, false);
    if (state.is_object()) roles[role] = std::move(state);
  }
  return roles;
}

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

Result<json> gather(wire::Connection& connection) {
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

void print_targets(const json& status) {
  Table targets({"TARGET", "STORED", "FREE", "BLOCKS", "STATE", "DEVICE", "DIRECTORY"});
  for (const json& target : status["targets"])
    targets.add({std::to_string(target.value("id", 0)),
                 human_bytes(target.value("stored_bytes", std::uint64_t{0})),
                 human_bytes(target.value("free_bytes", std::uint64_t{0})),
                 human_count(target.value("blocks", std::uint64_t{0})),
                 target.contains("problem") ? "cannot be reached" : target.value("state", ""),
                 target.value("device", "-"),
                 target.value("directory", target.value("endpoint", ""))});
  std::printf("\n%s", targets.render().c_str());
}

void print_sessions(const json& status) {
  Table sessions({"SESSION", "WHO", "WHAT", "AGE", "VOLUMES"});
  for (const json& session : status["sessions"])
    sessions.add({std::to_string(session.value("id", 0)), session.value("host", ""),
                  session.value("purpose", ""),
                  human_duration(Milliseconds(session.value("age_ms", 0))),
                  std::to_string(session.value("branches", 0))});
  std::printf("\n%s", sessions.render().c_str());
}

void print(const json& status) {
  std::printf("%s  %d volumes, %d data sets, %s stored\n",
              styled("site " + status.value("cluster", ""), Style::bold).c_str(),
              status.value("volumes", 0), status.value("data_sets", 0),
              human_bytes(status.value("stored_bytes", std::uint64_t{0})).c_str());
  print_targets(status);
  print_sessions(status);
  const json roles = status.value("roles", json::object());
  for (const auto& [role, state] : roles.items()) {
    std::printf("\n%s  process %d\n", styled(role, Style::bold).c_str(), state.value("pid", 0));
    const json figures = state.value("figures", json::object());
    for (const auto& [name, value] : figures.items())
      std::printf("  %-24s %s\n", name.c_str(),
                  value.is_string() ? value.get<std::string>().c_str() : value.dump().c_str());
  }
}

Status run(Program& program) {
  const auto connection = SL_TRY(program.connect());
  json status = SL_TRY(gather(*connection));
  if (const Result<wire::Site> site = program.site(); site.ok())
    status["roles"] = role_states(*site);
  if (program.globals().json)
    std::printf("%s\n", status.dump().c_str());
  else
    print(status);
  return {};
}

}  // namespace

void add_status_command(Program& program) {
  program.add(program.app(), "status", "What runs, what it holds, which fast paths are on", "",
              [&program] { return run(program); });
}

}  // namespace starlane::cli
