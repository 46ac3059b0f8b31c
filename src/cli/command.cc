#include "cli/command.h"

#include <cerrno>
#include <cstdio>

#include "cli/terminal.h"
#include "common/errno.h"
#include "common/log.h"
#include "wire/roles.h"

namespace starlane::cli {
namespace {

constexpr const char* kEpilogue =
    "Examples:\n"
    "  starlane up --dir /srv/starlane --mount /mnt/starlane     everything on this machine, in "
    "the foreground\n"
    "  export STARLANE_DIR=/srv/starlane\n"
    "  starlane volume create work                               a volume, at "
    "/mnt/starlane/volumes/work\n"
    "  starlane dataset publish ./books books 2024-06            read-only, at "
    "/mnt/starlane/public/books/2024-06\n"
    "  starlane status\n";

}  // namespace

Program::Program() : app_("Starlane: a parallel file system for AI work", "starlane") {
  app_.require_subcommand(1);
  app_.set_version_flag("--version", std::string("starlane ") + wire::kVersion);
  app_.footer(kEpilogue);
  app_.add_option("--dir", globals_.directory, "The site's directory (STARLANE_DIR)")
      ->envname("STARLANE_DIR");
  app_.add_flag("--json", globals_.json, "Answer in JSON, for programs");
  app_.add_option("--meta", globals_.meta,
                  "A site elsewhere: where its metadata is served, tcp:HOST:PORT");
  app_.add_option("--key", globals_.key_file, "With --meta: the site's key file");
  app_.fallthrough();
}

CLI::App* Program::add(CLI::App& parent, const std::string& name, const std::string& text,
                       const std::string& examples, std::function<Status()> body) {
  CLI::App* command = parent.add_subcommand(name, text);
  command->fallthrough();
  if (!examples.empty()) command->footer("Examples:\n" + examples);
  if (body) command->callback([this, body = std::move(body)] { outcome_ = body(); });
  return command;
}

Result<wire::Site> Program::site() const {
  if (globals_.directory.empty())
    return Status(Errc::invalid, "which site? Give --dir DIR, or set STARLANE_DIR");
  return wire::Site::open(globals_.directory);
}

Result<std::unique_ptr<wire::Connection>> Program::connect() const {
  if (!globals_.meta.empty()) {
    if (globals_.key_file.empty())
      return Status(
          Errc::invalid,
          "--meta needs the site's key file: give --key FILE (DIR/key where it was made)");
    return wire::Connection::open({globals_.meta, globals_.key_file});
  }
  const wire::Site here = SL_TRY(site());
  return wire::Connection::open(wire::address_of(here));
}

Status not_unmounted(const std::string& mountpoint, int error) {
  if (error == EINVAL) return Status(Errc::invalid, mountpoint + " is not a mount");
  if (error == EBUSY)
    return Status(Errc::busy,
                  mountpoint + " is in use; `fuser -vm " + mountpoint + "` says by whom");
  return system_error("cannot unmount " + mountpoint, error);
}

int Program::run(int argc, char** argv) {
  words_.assign(argv, argv + argc);
  start_logging({.role = "starlane", .file = "", .level = "warn"});
  try {
    app_.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app_.exit(help);
  } catch (const CLI::CallForAllHelp& help) {
    return app_.exit(help);
  } catch (const CLI::CallForVersion& version) {
    return app_.exit(version);
  } catch (const CLI::ParseError& wrong) {
    std::fprintf(stderr, "starlane: %s (see starlane --help)\n", wrong.what());
    return 2;
  }
  if (outcome_.ok()) return 0;
  std::fflush(stdout);
  std::fprintf(stderr, "%s %s\n", styled("starlane:", Style::red).c_str(),
               outcome_.text().empty() ? outcome_.to_string().c_str() : outcome_.text().c_str());
  return 1;
}

}  // namespace starlane::cli
