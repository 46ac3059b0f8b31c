// dataset publish|list|show|files|verify|delete.
#include <sys/stat.h>

#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/command.h"
#include "cli/terminal.h"
#include "dataset/image_tree.h"
#include "dataset/publish.h"

namespace starlane::cli {
namespace {

constexpr Nanoseconds kTakeOver = std::chrono::seconds(40);

struct Arguments {
  std::string source;
  std::string name;
  std::string version;
  std::size_t workers = 4;
};

nlohmann::json to_json(const pb::Image& image) {
  return {{"name", image.name()},
          {"version", image.version()},
          {"state", image.state()},
          {"files", image.files()},
          {"directories", image.directories()},
          {"bytes", image.bytes()},
          {"digest", image.digest()},
          {"source", image.source()},
          {"created", image.created().seconds()},
          {"view", image.view()},
          {"branch", image.branch()},
          {"pins", image.pins()}};
}

pb::ImageRequest request_of(const Arguments& arguments) {
  pb::ImageRequest request;
  request.set_name(arguments.name);
  request.set_version(arguments.version);
  return request;
}

void print_published(const pb::Image& image, const dataset::Published& done, Nanoseconds took) {
  const double seconds = std::chrono::duration<double>(took).count();
  std::printf("%s %s/%s: %s files, %s in %s (%s, written and read back)\n",
              styled("published", Style::green).c_str(), image.name().c_str(),
              image.version().c_str(), human_count(done.files).c_str(),
              human_bytes(done.bytes).c_str(), human_duration(took).c_str(),
              human_rate(static_cast<double>(done.bytes) / std::max(seconds, 1e-3)).c_str());
  if (done.resumed_files > 0)
    std::printf("  went on from an earlier attempt: %s files were there\n",
                human_count(done.resumed_files).c_str());
  std::printf("  digest %s\n  under  public/%s/%s of the mount, read-only\n",
              image.digest().c_str(), image.name().c_str(), image.version().c_str());
}

/// Begins, or goes on. An attempt that was cut off still owns the version until its session has
/// ended.
Result<pb::Image> begin_image(MetaService& meta, const pb::ImageRequest& request) {
  const Deadline deadline = Deadline::after(kTakeOver);
  for (;;) {
    pb::Image image;
    const Status begun = meta.image_begin({}, request, &image);
    if (begun.ok()) return image;
    if (begun.code() != Errc::busy || deadline.passed()) return begun;
    std::this_thread::sleep_for(Milliseconds(200));
  }
}

Status publish(Program& program, const Arguments& arguments) {
  const Nanoseconds started = system_clock().boot();
  const dataset::SourceTree tree = SL_TRY(dataset::read_source_tree(arguments.source));
  const auto connection = SL_TRY(program.connect());
  const auto files = SL_TRY(wire::FileConnection::open(*connection, "publish " + arguments.name));
  pb::ImageRequest request = request_of(arguments);
  request.set_source(tree.root.string());
  request.set_session(files->sessions().id().value);
  pb::Image image = SL_TRY(begin_image(files->meta(), request));
  const BranchId branch = SL_TRY(files->attach_image(arguments.name, arguments.version));
  dataset::Published done;
  {
    Progress progress("publish " + arguments.name, 2 * tree.bytes);
    dataset::PublishOptions options;
    options.workers = arguments.workers;
    options.advance = [&](std::uint64_t bytes) { progress.advance(bytes); };
    done = SL_TRY(
        dataset::ingest(tree, {files->meta(), files->io(), files->sessions(), branch}, options));
  }
  request.set_files(done.files);
  request.set_directories(done.directories);
  request.set_bytes(done.bytes);
  request.set_digest(done.digest);
  SL_TRY(files->meta().image_freeze({}, request, &image));
  if (program.globals().json)
    std::printf("%s\n", to_json(image).dump().c_str());
  else
    print_published(image, done, system_clock().boot() - started);
  return {};
}

Status list(Program& program) {
  const auto connection = SL_TRY(program.connect());
  pb::ListImagesReply reply;
  SL_TRY(connection->meta().image_list({}, {}, &reply));
  if (program.globals().json) {
    auto all = nlohmann::json::array();
    for (const pb::Image& image : reply.images()) all.push_back(to_json(image));
    std::printf("%s\n", all.dump().c_str());
    return {};
  }
  Table table({"DATA SET", "VERSION", "SIZE", "FILES", "STATE"});
  for (const pb::Image& image : reply.images())
    table.add({image.name(), image.version(), human_bytes(image.bytes()),
               human_count(image.files()), image.state()});
  if (reply.images().empty())
    std::printf("no data sets yet; `starlane dataset publish DIR NAME VERSION` makes one\n");
  else
    std::printf("%s", table.render().c_str());
  return {};
}

Status show(Program& program, const Arguments& arguments) {
  const auto connection = SL_TRY(program.connect());
  pb::Image image;
  SL_TRY(connection->meta().image_get({}, request_of(arguments), &image));
  if (program.globals().json) {
    std::printf("%s\n", to_json(image).dump().c_str());
    return {};
  }
  std::printf("%s\n", styled(image.name() + "/" + image.version(), Style::bold).c_str());
  std::printf("  state   %s\n  size    %s in %s files and %s directories\n", image.state().c_str(),
              human_bytes(image.bytes()).c_str(), human_count(image.files()).c_str(),
              human_count(image.directories()).c_str());
  std::printf("  digest  %s\n  source  %s\n  shared  %s references from volumes\n",
              image.digest().c_str(), image.source().c_str(), human_count(image.pins()).c_str());
  return {};
}

/// Without a mount: a call for each thousand entries.
Status files(Program& program, const Arguments& arguments) {
  const auto connection = SL_TRY(program.connect());
  const auto files = SL_TRY(wire::FileConnection::open(*connection, "list " + arguments.name));
  const BranchId branch = SL_TRY(files->attach_image(arguments.name, arguments.version));
  dataset::ImageTree tree({files->meta(), files->io(), files->sessions(), branch});
  auto all = nlohmann::json::array();
  SL_TRY(tree.walk([&](const std::string& path, const pb::Attributes& attributes) {
    if (!S_ISREG(attributes.mode())) return;
    if (program.globals().json)
      all.push_back({{"path", path}, {"bytes", attributes.length()}});
    else
      std::printf("%12" PRIu64 "  %s\n", attributes.length(), path.c_str());
  }));
  // A name may be any bytes; JSON is not: what is not UTF-8 is replaced.
  if (program.globals().json)
    std::printf("%s\n", all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  return {};
}

Status verify(Program& program, const Arguments& arguments) {
  const Nanoseconds started = system_clock().boot();
  const auto connection = SL_TRY(program.connect());
  pb::Image image;
  SL_TRY(connection->meta().image_get({}, request_of(arguments), &image));
  if (image.state() != "published")
    return Status(Errc::invalid, arguments.name + "/" + arguments.version + " is " + image.state() +
                                     "; publish it to the end first");
  const auto files = SL_TRY(wire::FileConnection::open(*connection, "verify " + arguments.name));
  const BranchId branch = SL_TRY(files->attach_image(arguments.name, arguments.version));
  dataset::Published found;
  {
    Progress progress("verify " + arguments.name, image.bytes());
    dataset::PublishOptions options;
    options.workers = arguments.workers;
    options.advance = [&](std::uint64_t bytes) { progress.advance(bytes); };
    found = SL_TRY(
        dataset::digest_of({files->meta(), files->io(), files->sessions(), branch}, options));
  }
  if (found.digest != image.digest())
    return Status(Errc::corrupt, arguments.name + "/" + arguments.version +
                                     " is not what was published: its digest is " + found.digest +
                                     ", not " + image.digest());
  if (program.globals().json)
    std::printf("%s\n", to_json(image).dump().c_str());
  else
    std::printf("%s %s/%s: %s in %s files read back in %s, the digest is right\n",
                styled("verified", Style::green).c_str(), image.name().c_str(),
                image.version().c_str(), human_bytes(found.bytes).c_str(),
                human_count(found.files).c_str(),
                human_duration(system_clock().boot() - started).c_str());
  return {};
}

Status remove(Program& program, const Arguments& arguments) {
  const auto connection = SL_TRY(program.connect());
  pb::Empty reply;
  SL_TRY(connection->meta().image_delete({}, request_of(arguments), &reply));
  if (!program.globals().json)
    std::printf("%s/%s is deleted; its space returns in the background\n", arguments.name.c_str(),
                arguments.version.c_str());
  return {};
}

}  // namespace

void add_dataset_commands(Program& program) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* group = program.add(program.app(), "dataset",
                                "Read-only data sets, under public/ of the mount", "", nullptr);
  group->require_subcommand(1);
  const auto with_name = [arguments](CLI::App* command) {
    command->add_option("name", arguments->name, "1 to 63 of a-z 0-9 . _ -")->required();
    command->add_option("version", arguments->version, "as 2024-06 or v1")->required();
  };
  const auto with_workers = [arguments](CLI::App* command) {
    command->add_option("--workers", arguments->workers, "Files worked on at once")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
  };
  CLI::App* command = program.add(
      *group, "publish",
      "Makes a directory a version of a data set; goes on where an interrupted attempt stopped",
      "  starlane dataset publish ./books books 2024-06\n",
      [&program, arguments] { return publish(program, *arguments); });
  command->add_option("directory", arguments->source)->required();
  with_name(command);
  with_workers(command);
  program.add(*group, "list", "Lists the data sets", "", [&program] { return list(program); });
  with_name(program.add(*group, "show", "One version in full", "",
                        [&program, arguments] { return show(program, *arguments); }));
  with_name(program.add(*group, "files", "Every file of a version, with its bytes", "",
                        [&program, arguments] { return files(program, *arguments); }));
  command = program.add(*group, "verify", "Reads a version back and compares its digest", "",
                        [&program, arguments] { return verify(program, *arguments); });
  with_name(command);
  with_workers(command);
  add_tree_mount_commands(program, *group);
  with_name(program.add(*group, "delete", "Deletes a version that no volume shares", "",
                        [&program, arguments] { return remove(program, *arguments); }));
}

}  // namespace starlane::cli
