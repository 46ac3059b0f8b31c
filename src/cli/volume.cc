// volume create|list|show|quota|delete.
#include <unistd.h>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command.h"
#include "cli/terminal.h"

namespace starlane::cli {
namespace {

nlohmann::json to_json(const pb::Volume& volume) {
  return {{"name", volume.name()},
          {"branch", volume.branch()},
          {"view", volume.view()},
          {"created", volume.created().seconds()},
          {"live_bytes", volume.live_bytes()},
          {"held_bytes", volume.held_bytes()},
          {"inodes", volume.inodes()},
          {"quota_bytes", volume.quota_bytes()},
          {"quota_inodes", volume.quota_inodes()},
          {"escrow_bytes", volume.escrow_bytes()},
          {"trash_bytes", volume.trash_bytes()},
          {"trash_inodes", volume.trash_inodes()},
          {"trash_seconds", volume.trash_seconds()},
          {"trash_min_age_seconds", volume.trash_min_age_seconds()},
          {"sessions", volume.sessions()},
          {"state", volume.state()}};
}

std::string limit_text(std::uint64_t limit, const std::string& text) {
  return limit == 0 ? "none" : text;
}

void print_volume(const pb::Volume& volume) {
  std::printf("%s\n", styled(volume.name(), Style::bold).c_str());
  std::printf("  state      %s\n", volume.state().c_str());
  std::printf("  live       %s in %s inodes\n", human_bytes(volume.live_bytes()).c_str(),
              human_count(volume.inodes()).c_str());
  std::printf("  trash      %s in %s inodes\n", human_bytes(volume.trash_bytes()).c_str(),
              human_count(volume.trash_inodes()).c_str());
  std::printf("  held       %s (freed, not yet removed)\n",
              human_bytes(volume.held_bytes()).c_str());
  std::printf("  quota      %s, inodes %s\n",
              limit_text(volume.quota_bytes(), human_bytes(volume.quota_bytes())).c_str(),
              limit_text(volume.quota_inodes(), human_count(volume.quota_inodes())).c_str());
  std::printf("  set aside  %s (of the quota, for who writes now)\n",
              human_bytes(volume.escrow_bytes()).c_str());
  std::printf("  sessions   %u\n", volume.sessions());
}

struct Arguments {
  std::string name;
  std::optional<std::uint64_t> bytes;  // of `quota`
  std::optional<std::uint64_t> inodes;
  std::uint64_t quota_bytes = 0;
  std::uint64_t quota_inodes = 0;
  bool force = false;
};

Status create(Program& program, const Arguments& arguments) {
  const auto connection = SL_TRY(program.connect());
  pb::VolumeRequest request;
  request.set_name(arguments.name);
  request.set_quota_bytes(arguments.quota_bytes);
  request.set_quota_inodes(arguments.quota_inodes);
  request.set_uid(::getuid());
  request.set_gid(::getgid());
  request.set_mode(0755);
  pb::Volume volume;
  SL_TRY(connection->meta().volume_create({}, request, &volume));
  if (program.globals().json)
    std::printf("%s\n", to_json(volume).dump().c_str());
  else
    std::printf("volume %s is there: volumes/%s under the mount\n", volume.name().c_str(),
                volume.name().c_str());
  return {};
}

Status list(Program& program) {
  const auto connection = SL_TRY(program.connect());
  pb::ListVolumesReply reply;
  SL_TRY(connection->meta().volume_list({}, {}, &reply));
  if (program.globals().json) {
    auto all = nlohmann::json::array();
    for (const pb::Volume& volume : reply.volumes()) all.push_back(to_json(volume));
    std::printf("%s\n", all.dump().c_str());
    return {};
  }
  Table table({"VOLUME", "LIVE", "INODES", "QUOTA", "SESSIONS", "STATE"});
  for (const pb::Volume& volume : reply.volumes())
    table.add({volume.name(), human_bytes(volume.live_bytes()), human_count(volume.inodes()),
               limit_text(volume.quota_bytes(), human_bytes(volume.quota_bytes())),
               std::to_string(volume.sessions()), volume.state()});
  if (reply.volumes().empty())
    std::printf("no volumes yet; `starlane volume create NAME` makes one\n");
  else
    std::printf("%s", table.render().c_str());
  return {};
}

Status show(Program& program, const Arguments& arguments) {
  const auto connection = SL_TRY(program.connect());
  const pb::Volume volume = SL_TRY(volume_named(connection->meta(), arguments.name));
  if (program.globals().json)
    std::printf("%s\n", to_json(volume).dump().c_str());
  else
    print_volume(volume);
  return {};
}

Status set_quota(Program& program, const Arguments& arguments) {
  if (!arguments.bytes && !arguments.inodes)
    return Status(Errc::invalid,
                  "say what the quota is: --bytes 100GiB, --inodes 1000000, 0: none");
  const auto connection = SL_TRY(program.connect());
  pb::VolumeSettings settings;
  settings.set_name(arguments.name);
  if (arguments.bytes) settings.set_quota_bytes(*arguments.bytes);
  if (arguments.inodes) settings.set_quota_inodes(*arguments.inodes);
  pb::Volume volume;
  SL_TRY(connection->meta().volume_set({}, settings, &volume));
  if (program.globals().json)
    std::printf("%s\n", to_json(volume).dump().c_str());
  else
    print_volume(volume);
  return {};
}

Status remove(Program& program, const Arguments& arguments) {
  const auto connection = SL_TRY(program.connect());
  pb::VolumeRequest request;
  request.set_name(arguments.name);
  request.set_force(arguments.force);
  pb::Empty reply;
  SL_TRY(connection->meta().volume_delete({}, request, &reply));
  if (!program.globals().json)
    std::printf("volume %s is deleted; its space returns in the background\n",
                arguments.name.c_str());
  return {};
}

}  // namespace

Result<pb::Volume> volume_named(MetaService& meta, const std::string& name) {
  pb::VolumeRequest request;
  request.set_name(name);
  pb::Volume volume;
  SL_TRY(meta.volume_get({}, request, &volume));
  return volume;
}

void add_volume_commands(Program& program) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* group = program.add(program.app(), "volume",
                                "Private volumes, under volumes/ of the mount", "", nullptr);
  group->require_subcommand(1);
  CLI::App* command =
      program.add(*group, "create", "Makes a volume",
                  "  starlane volume create work\n  starlane volume create work --quota 100GiB\n",
                  [&program, arguments] { return create(program, *arguments); });
  command->add_option("name", arguments->name, "1 to 63 of a-z 0-9 . _ -")->required();
  command->add_option("--quota", arguments->quota_bytes, "Most bytes it may hold, as 100GiB")
      ->transform(CLI::AsSizeValue(false));
  command->add_option("--quota-inodes", arguments->quota_inodes,
                      "Most files and directories it may hold");
  program.add(*group, "list", "Lists the volumes", "", [&program] { return list(program); });
  command = program.add(*group, "show", "One volume in full", "",
                        [&program, arguments] { return show(program, *arguments); });
  command->add_option("name", arguments->name)->required();
  command =
      program.add(*group, "quota", "Sets the most that a volume may hold, whatever it holds now",
                  "  starlane volume quota work --bytes 1TiB --inodes 10000000\n"
                  "  starlane volume quota work --bytes 0      no limit\n"
                  "What is in the trash does not count. A write beyond it is answered EDQUOT.\n",
                  [&program, arguments] { return set_quota(program, *arguments); });
  command->add_option("name", arguments->name)->required();
  command->add_option("--bytes", arguments->bytes, "Most bytes, as 100GiB; 0: no limit")
      ->transform(CLI::AsSizeValue(false));
  command->add_option("--inodes", arguments->inodes, "Most files and directories; 0: no limit");
  command = program.add(*group, "delete", "Deletes a volume and all that is in it", "",
                        [&program, arguments] { return remove(program, *arguments); });
  command->add_option("name", arguments->name)->required();
  command->add_flag("--force", arguments->force,
                    "Also while it is mounted somewhere: writers there are cut off");
}

}  // namespace starlane::cli
