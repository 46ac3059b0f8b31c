// trash list|restore|empty|keep: what was deleted in a volume, and its way back.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/terminal.h"
#include "cli/trash/forest.h"

namespace starlane::cli {
namespace {

using nlohmann::json;

constexpr const char* kLostDirectory = "restored";  // for what has no directory any more
constexpr std::uint64_t kRoot = 1;
constexpr std::uint32_t kDirectory = 0040000, kTypeMask = 0170000;

struct Arguments {
  std::string volume;
  std::vector<std::string> paths;
  std::vector<std::uint64_t> ids;
  std::string into;
  bool all = false;
  std::uint64_t keep_seconds = 0;
  std::optional<std::uint64_t> min_age_seconds;
};

bool is_directory(const pb::Attributes& attributes) {
  return (attributes.mode() & kTypeMask) == kDirectory;
}

/// As it is typed: from the root of the volume, however it begins and ends.
std::string tidy(std::string path) {
  while (path.starts_with("/") || path.starts_with("./")) path.erase(0, path[0] == '/' ? 1 : 2);
  while (path.ends_with("/")) path.pop_back();
  return path == "." ? "" : path;
}

// ---- list ----

json to_json(const Forest::Node& node) {
  return {{"id", node.entry.item().inode()},
          {"path", node.path},
          {"directory", is_directory(node.entry.attributes())},
          {"root", node.root},
          {"bytes", node.bytes},
          {"inodes", node.inodes},
          {"deleted", static_cast<double>(node.entry.item().deleted_ns()) / 1e9},
          {"expires", static_cast<double>(node.entry.expires_ns()) / 1e9}};
}

std::string span_to(std::uint64_t from_ns, std::uint64_t to_ns) {
  return from_ns < to_ns ? human_duration(Nanoseconds(to_ns - from_ns)) : "now";
}

void print(const Forest& forest, bool all) {
  const WallTime wall = system_clock().wall();
  const auto now = static_cast<std::uint64_t>(wall.seconds) * 1'000'000'000 + wall.nanoseconds;
  Table table({"DELETED", "GOES IN", "SIZE", "INODES", "ID", "PATH"});
  for (const Forest::Node& node : forest.nodes()) {
    if (!all && !node.root) continue;
    table.add({span_to(node.entry.item().deleted_ns(), now) + " ago",
               span_to(now, node.entry.expires_ns()), human_bytes(node.bytes),
               human_count(node.inodes), std::to_string(node.entry.item().inode()),
               node.path + (is_directory(node.entry.attributes()) ? "/" : "")});
  }
  std::printf("%s", forest.nodes().empty() ? "the trash is empty\n" : table.render().c_str());
}

Status list(Program& program, const Arguments& arguments) {
  const auto connection = SL_TRY(program.connect());
  const pb::Volume volume = SL_TRY(volume_named(connection->meta(), arguments.volume));
  const Forest forest = SL_TRY(Forest::read(connection->meta(), BranchId(volume.branch())));
  if (!program.globals().json) {
    print(forest, arguments.all);
    return {};
  }
  json all = json::array();
  for (const Forest::Node& node : forest.nodes())
    if (arguments.all || node.root) all.push_back(to_json(node));
  std::printf("%s\n", all.dump(-1, ' ', false, json::error_handler_t::replace).c_str());
  return {};
}

// ---- restore ----

/// Gives trees their names back, through a session that has the volume attached: so mounts that
/// answer from their caches hear of it first.
class Restorer {
 public:
  Restorer(wire::FileConnection& files, BranchId branch) : files_(files), branch_(branch) {}

  /// The tree of `top`, into the directory `into` (0: where it was).
  void restore(const Forest& forest, std::size_t top, std::uint64_t into) {
    std::vector<Work> left{{top, into}};
    while (!left.empty()) {
      const Work work = left.back();
      left.pop_back();
      const Forest::Node& node = forest.nodes()[work.node];
      const Result<std::uint64_t> parent = place(node, work.into);
      Result<std::uint64_t> there = parent.ok() ? give_back(node, *parent) : parent;
      if (!there.ok()) {
        note(node, there.status());
        continue;
      }
      for (const std::size_t child : node.children) left.push_back({child, *there});
    }
  }

  /// A directory of the volume, by its path.
  Result<std::uint64_t> directory_at(const std::string& path) {
    std::uint64_t at = kRoot;
    std::size_t begin = 0;
    while (begin < path.size()) {
      const std::size_t end = std::min(path.find('/', begin), path.size());
      const pb::Attributes found = SL_TRY(look_up(at, path.substr(begin, end - begin)));
      if (!is_directory(found)) return Status(Errc::not_directory, path + " is not a directory");
      at = found.inode();
      begin = end + 1;
    }
    return at;
  }

  std::uint64_t restored() const { return restored_; }
  std::uint64_t failed() const { return failed_; }
  const Status& first() const { return first_; }

 private:
  struct Work {
    std::size_t node;
    std::uint64_t into;
  };

  void note(const Forest::Node& node, const Status& status) {
    failed_ += node.inodes;
    if (first_.ok()) first_ = status.with(node.path);
  }

  Result<std::uint64_t> place(const Forest::Node& node, std::uint64_t into) {
    if (into != 0) return into;
    if (node.parent_lives) return node.entry.parent();
    if (lost_ == 0) lost_ = SL_TRY(make_lost_directory());
    return lost_;
  }

  Status fill(pb::On* on, std::uint64_t number) {
    const client::Attachment attachment = SL_TRY(files_.sessions().attachment(branch_));
    on->set_session(attachment.session.value);
    on->set_branch(branch_.value);
    on->set_attachment_epoch(attachment.epoch);
    on->set_request(number);
    return {};
  }

  Result<pb::Attributes> look_up(std::uint64_t parent, const std::string& name) {
    pb::LookupRequest request;
    request.mutable_on()->set_branch(branch_.value);
    request.set_parent(parent);
    request.set_name(name);
    pb::NewEntry entry;
    SL_TRY(files_.meta().lookup({}, request, &entry));
    return entry.attributes();
  }

  Result<std::uint64_t> make_lost_directory() {
    pb::CreateRequest request;
    const auto number = files_.sessions().requests().begin(0);
    SL_TRY(fill(request.mutable_on(), number.value()));
    request.set_parent(kRoot);
    request.set_name(kLostDirectory);
    request.set_mode(0700);
    pb::NewEntry made;
    const Status status = files_.meta().make_directory({}, request, &made);
    if (status.ok()) return made.attributes().inode();
    if (status.code() != Errc::exists) return status;
    return directory_at(kLostDirectory);
  }

  /// Where the node is now: its own inode, or the directory that has taken its place.
  Result<std::uint64_t> give_back(const Forest::Node& node, std::uint64_t parent) {
    Status status = ask(node, parent, "");
    const std::uint64_t inode = node.entry.item().inode();
    if (status.code() == Errc::exists && parent == lost_)
      status = ask(node, parent, node.entry.name() + "." + std::to_string(inode));
    if (status.code() == Errc::exists && is_directory(node.entry.attributes())) {
      const pb::Attributes there = SL_TRY(look_up(parent, node.entry.name()));
      if (is_directory(there)) return there.inode();
    }
    if (status.code() == Errc::exists)
      return Status(Errc::exists, "the name is taken: move that away, or restore --into DIRECTORY");
    if (!status.ok()) return status;
    ++restored_;
    return inode;
  }

  Status ask(const Forest::Node& node, std::uint64_t parent, const std::string& name) {
    pb::TrashRestoreRequest request;
    const auto number = files_.sessions().requests().begin(0);
    SL_TRY(fill(request.mutable_on(), number.value()));
    *request.mutable_item() = node.entry.item();
    request.set_parent(parent);
    request.set_name(name);
    pb::NewEntry made;
    return files_.meta().trash_restore({}, request, &made);
  }

  wire::FileConnection& files_;
  const BranchId branch_;
  std::uint64_t lost_ = 0;
  std::uint64_t restored_ = 0, failed_ = 0;
  Status first_;
};

/// Roots of the trees that are meant.
Result<std::vector<std::size_t>> choose(const Forest& forest, const Arguments& arguments) {
  std::vector<std::size_t> chosen;
  for (const std::uint64_t id : arguments.ids) {
    const auto found = forest.by_inode(id);
    if (!found)
      return Status(Errc::not_found, "nothing in the trash has the id " + std::to_string(id) +
                                         "; see `starlane trash list --all " + arguments.volume +
                                         "`");
    chosen.push_back(*found);
  }
  for (const std::string& path : arguments.paths) {
    const std::vector<std::size_t> found = forest.at(tidy(path));
    if (found.empty())
      return Status(Errc::not_found, "nothing in the trash was called " + path +
                                         "; paths begin at the root of the volume, see `starlane "
                                         "trash list --all " +
                                         arguments.volume + "`");
    chosen.insert(chosen.end(), found.begin(), found.end());
  }
  return chosen;
}

Status restore(Program& program, const Arguments& arguments) {
  if (arguments.paths.empty() && arguments.ids.empty())
    return Status(Errc::invalid, "say what to restore: a path in the volume, or --id ID");
  const auto connection = SL_TRY(program.connect());
  const pb::Volume volume = SL_TRY(volume_named(connection->meta(), arguments.volume));
  const auto files = SL_TRY(wire::FileConnection::open(*connection, "restore " + arguments.volume));
  client::AttachTarget target;
  target.volume = arguments.volume;
  const auto attached = SL_TRY(files->sessions().attach(target, 0));
  const Forest forest = SL_TRY(Forest::read(files->meta(), attached->branch));
  Restorer restorer(*files, attached->branch);
  std::uint64_t into = 0;
  if (!arguments.into.empty()) into = SL_TRY(restorer.directory_at(tidy(arguments.into)));
  const std::vector<std::size_t> tops = SL_TRY(choose(forest, arguments));
  for (const std::size_t top : tops) restorer.restore(forest, top, into);
  if (program.globals().json)
    std::printf(
        "%s\n",
        json{{"restored", restorer.restored()}, {"failed", restorer.failed()}}.dump().c_str());
  else
    std::printf("restored %s files and directories\n", human_count(restorer.restored()).c_str());
  if (restorer.failed() == 0) return {};
  return restorer.first().with(std::to_string(restorer.failed()) + " stay in the trash");
}

// ---- empty, keep ----

Status empty(Program& program, const Arguments& arguments) {
  const auto connection = SL_TRY(program.connect());
  const pb::Volume volume = SL_TRY(volume_named(connection->meta(), arguments.volume));
  pb::TrashEmptyRequest request;
  request.set_branch(volume.branch());
  std::uint64_t emptied = 0;
  for (bool more = true; more;) {
    pb::TrashEmptyReply reply;
    SL_TRY(connection->meta().trash_empty({}, request, &reply));
    emptied += reply.emptied();
    more = reply.more();
  }
  if (program.globals().json)
    std::printf("%s\n", json{{"emptied", emptied}}.dump().c_str());
  else
    std::printf("%s files and directories are gone; their space returns in the background\n",
                human_count(emptied).c_str());
  return {};
}

Status keep(Program& program, const Arguments& arguments) {
  const auto connection = SL_TRY(program.connect());
  pb::VolumeSettings settings;
  settings.set_name(arguments.volume);
  settings.set_trash_seconds(static_cast<std::uint32_t>(arguments.keep_seconds));
  if (arguments.min_age_seconds)
    settings.set_trash_min_age_seconds(static_cast<std::uint32_t>(*arguments.min_age_seconds));
  pb::Volume volume;
  SL_TRY(connection->meta().volume_set({}, settings, &volume));
  if (program.globals().json)
    std::printf("%s\n", json{{"trash_seconds", volume.trash_seconds()},
                             {"trash_min_age_seconds", volume.trash_min_age_seconds()}}
                            .dump()
                            .c_str());
  else if (volume.trash_seconds() == 0)
    std::printf("what is deleted in %s goes at once, and so does its trash\n",
                volume.name().c_str());
  else
    std::printf("what is deleted in %s is kept for %s, unless it lived for less than %s\n",
                volume.name().c_str(),
                human_duration(std::chrono::seconds(volume.trash_seconds())).c_str(),
                human_duration(std::chrono::seconds(volume.trash_min_age_seconds())).c_str());
  return {};
}

CLI::Option* add_duration(CLI::App* command, const std::string& name, auto& value,
                          const std::string& text) {
  static const std::map<std::string, std::uint64_t> kUnits = {
      {"s", 1}, {"min", 60}, {"h", 3'600}, {"d", 86'400}, {"w", 604'800}};
  return command->add_option(name, value, text)
      ->transform(CLI::AsNumberWithUnit(kUnits))
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{3'650} * 86'400));
}

}  // namespace

void add_trash_commands(Program& program) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* group = program.add(program.app(), "trash",
                                "What was deleted in a volume, kept for a while", "", nullptr);
  group->require_subcommand(1);
  CLI::App* command = program.add(*group, "list", "What is in the trash, oldest first", "",
                                  [&program, arguments] { return list(program, *arguments); });
  command->add_option("volume", arguments->volume)->required();
  command->add_flag("--all", arguments->all, "Also what lies inside of deleted directories");
  command = program.add(
      *group, "restore", "Gives deleted files and trees their names back",
      "  starlane trash restore work papers/draft.tex\n"
      "  starlane trash restore work papers            the tree, or all that was deleted below\n"
      "  starlane trash restore work --id 4711 --into old\n"
      "Of several that had one path, the last one deleted. Nothing is overwritten. What has no "
      "directory any more goes into /restored of the volume.\n",
      [&program, arguments] { return restore(program, *arguments); });
  command->add_option("volume", arguments->volume)->required();
  command->add_option("paths", arguments->paths, "From the root of the volume");
  command->add_option("--id", arguments->ids, "As `trash list` tells");
  command->add_option("--into", arguments->into, "A directory of the volume, not where it was");
  command = program.add(*group, "empty", "Frees all that is in the trash, for good", "",
                        [&program, arguments] { return empty(program, *arguments); });
  command->add_option("volume", arguments->volume)->required();
  command = program.add(*group, "keep", "Sets how long what is deleted is kept",
                        "  starlane trash keep work 7d\n"
                        "  starlane trash keep work 1d --min-age 10min\n"
                        "  starlane trash keep work 0      off: what is deleted goes at once\n",
                        [&program, arguments] { return keep(program, *arguments); });
  command->add_option("volume", arguments->volume)->required();
  add_duration(command, "time", arguments->keep_seconds, "As 90s, 30min, 12h, 7d, 2w")->required();
  add_duration(command, "--min-age", arguments->min_age_seconds,
               "What lived shorter goes at once, as 60s");
}

}  // namespace starlane::cli
