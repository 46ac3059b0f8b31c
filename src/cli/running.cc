// up, down, and the roles by hand: meta, store, mount, keeper; umount.
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "cli/command.h"
#include "cli/settings.h"
#include "cli/terminal.h"
#include "common/errno.h"
#include "common/log.h"
#include "wire/console.h"
#include "wire/holding.h"
#include "wire/supervisor.h"

namespace starlane::cli {
namespace {

sigset_t stop_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTERM);
  ::sigaddset(&set, SIGINT);
  return set;
}

/// While a role starts, which may wait for servers, Ctrl-C ends the process at once: nothing is
/// acknowledged yet. Destroyed when it serves, and from then on stops well.
class StartingWatch {
 public:
  StartingWatch() : thread_([this] { run(); }) {}
  ~StartingWatch() {
    done_ = true;
    thread_.join();
  }

 private:
  void run() const {
    const sigset_t set = stop_signals();
    const timespec tick{0, 20'000'000};
    while (!done_)
      if (::sigtimedwait(&set, nullptr, &tick) > 0) ::_exit(130);
  }

  std::atomic<bool> done_{false};  // set by the destructor, seen by the thread
  std::thread thread_;
};

struct Arguments {
  Settings settings;
  std::unique_ptr<StartingWatch> starting;
  bool separate = false;
  bool print = false;
  int ready_fd = -1;
  CLI::App* command = nullptr;
  std::unique_ptr<wire::Held> held;  // of a mount's daemon; its holder tells whoever waits

  bool first() const { return held == nullptr || held->generation() == 0; }
  void tell_ready(const Status& status) {
    starting.reset();  // whoever hears of it may stop it at once
    if (held == nullptr) return wire::tell_ready(ready_fd, status);
    status.ok() ? held->ready() : held->failed(status.text());
  }
};

void block_signals() {
  const sigset_t set = stop_signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

/// Until SIGTERM or SIGINT, until `ended` is readable, or until another daemon comes.
void wait_for_end(int ended, const wire::Held* held) {
  const sigset_t set = stop_signals();
  const UniqueFd signals(::signalfd(-1, &set, SFD_CLOEXEC));
  pollfd waiting[3] = {{signals.get(), POLLIN, 0},
                       {ended, POLLIN, 0},
                       {held == nullptr ? -1 : held->asked_to_end(), POLLIN, 0}};
  while (::poll(waiting, 3, -1) < 0 && errno == EINTR) {
  }
}

using Roles = std::vector<std::pair<std::string, wire::Role*>>;
using Servers = std::vector<std::pair<std::string, rpc::Server*>>;

/// What a running process shows of itself: a console, and what its roles do in the site's state
/// files. Destroyed before the roles.
struct Shown {
  std::unique_ptr<wire::Console> console;    // null: see show()
  std::unique_ptr<wire::StateWriter> state;  // null: no site on this machine
};
Result<Shown> show(const Result<wire::Site>& site, const Arguments& arguments, const Roles& roles,
                   const Servers& servers, wire::Network& network) {
  Shown shown;
  wire::Console::Options console;
  console.name = arguments.command->get_name();
  console.site = site.ok() ? &*site : nullptr;
  console.address = arguments.settings.metrics;
  console.roles = roles;
  console.servers = servers;
  console.network = &network;
  auto started = wire::Console::start(std::move(console));
  if (started.ok())
    shown.console = std::move(started.value());
  else if (arguments.first())
    return started.status();
  else  // a mount in use is worth more than its figures
    SL_LOG(warn, "event=no_console cause=\"{}\"", started.status().to_string());
  const auto places = shown.console ? shown.console->places() : std::vector<std::string>();
  if (site.ok()) shown.state = std::make_unique<wire::StateWriter>(*site, roles, places);
  return shown;
}

/// Before anything else is started: the process becomes the holder of a mount, whose daemon is this
/// program once more. Returns in the daemon, and where no holder is wanted.
Status hold(const Program& program, Arguments& arguments) {
  block_signals();  // of the thread that listens to the holder, too
  arguments.held = SL_TRY(wire::Held::join());
  if (arguments.held != nullptr || !arguments.settings.mount.hold) return {};
  wire::Holder holder({.arguments = program.words(),
                       .ready_fd = arguments.ready_fd,
                       .hang_limit_ms = static_cast<int>(arguments.settings.mount.hang_limit_ms)});
  std::fflush(nullptr);
  ::_exit(holder.run());
}

/// Another daemon goes on. What this one would still do on its way out, that one does.
void leave_if_replaced(wire::Role& mount, const Arguments& arguments) {
  if (arguments.held == nullptr || !arguments.held->another_comes()) return;
  mount.leave();
  ::_exit(0);
}

/// A role that was started by hand or by a supervisor: says that it serves, waits, stops. `first`:
/// a server that is stopped before the role, so that nothing comes after the role's last word.
Status run_role(wire::Role& role, Arguments& arguments, const std::string& what,
                rpc::Server* first = nullptr) {
  arguments.tell_ready({});
  if (arguments.first()) std::printf("ready  %s\n", what.c_str());
  std::fflush(stdout);
  wait_for_end(role.ended(), arguments.held.get());
  leave_if_replaced(role, arguments);
  if (first != nullptr) first->stop();
  return role.stop();
}

/// Tells whoever waits for the role what went wrong, too.
Status told(Arguments& arguments, const Status& status) {
  if (!status.ok()) arguments.tell_ready(status);
  return status;
}

/// How this role reaches metadata: the site of --dir, or --meta and --key.
struct Reach {
  std::unique_ptr<wire::Network> network;
  MetaService* meta = nullptr;
};
Result<Reach> reach(const Program& program, const Settings& settings) {
  wire::Address address{program.globals().meta, program.globals().key_file};
  if (address.endpoint.empty() || address.key_file.empty()) {
    const wire::Site site = SL_TRY(program.site());
    if (address.endpoint.empty()) address.endpoint = wire::address_of(site).endpoint;
    if (address.key_file.empty()) address.key_file = site.key_file().string();
  }
  Reach out;
  out.network = SL_TRY(wire::Network::open(address.key_file, settings.bulk()));
  out.meta = SL_TRY(out.network->meta(address.endpoint));
  return out;
}

Status read_settings(const Program& program, Arguments& arguments) {
  if (!program.globals().directory.empty())
    SL_TRY(apply_file(*arguments.command,
                      std::filesystem::path(program.globals().directory) / "starlane.toml"));
  arguments.settings.share();
  return {};
}

void prepare(Arguments& arguments) {
  block_signals();
  arguments.starting = std::make_unique<StartingWatch>();
  start_logging(
      {.role = arguments.command->get_name(), .file = "", .level = arguments.settings.log_level});
}

Status prepare(const Program& program, Arguments& arguments) {
  SL_TRY(read_settings(program, arguments));
  prepare(arguments);
  return {};
}

Status run_meta(const Program& program, Arguments& arguments) {
  SL_TRY(prepare(program, arguments));
  if (program.globals().directory.empty())
    return Status(Errc::invalid, "which site? Give --dir DIR");
  const wire::Site site = SL_TRY(wire::Site::open_or_create(program.globals().directory));
  const UniqueFd lock = SL_TRY(site.lock("meta"));
  const auto network =
      SL_TRY(wire::Network::open(site.key_file().string(), arguments.settings.bulk()));
  const auto role = SL_TRY(wire::MetaRole::start(site, arguments.settings.meta));
  SL_TRY(role->sync_before_flush(*network));
  std::vector<std::string> endpoints = arguments.settings.meta.listen;
  endpoints.push_back(site.endpoint("meta"));
  const auto server = SL_TRY(network->serve(
      {.meta = &role->service(), .workers = arguments.settings.meta.workers}, endpoints));
  const Shown shown =
      SL_TRY(show(site, arguments, {{"meta", role.get()}}, {{"meta", server.get()}}, *network));
  return run_role(*role, arguments, "metadata at " + endpoints.front(), server.get());
}

Status run_store(const Program& program, Arguments& arguments) {
  SL_TRY(prepare(program, arguments));
  if (program.globals().directory.empty())
    return Status(Errc::invalid, "which site? Give --dir DIR");
  const wire::Site site = SL_TRY(wire::Site::open_or_create(program.globals().directory));
  const UniqueFd lock = SL_TRY(site.lock("store"));
  const Reach way = SL_TRY(reach(program, arguments.settings));
  const auto role = SL_TRY(wire::StoreRole::open(site, *way.meta, arguments.settings.store));
  std::vector<std::string> endpoints = arguments.settings.store.listen;
  endpoints.push_back(site.endpoint("store"));
  const auto server = SL_TRY(way.network->serve(
      {.blocks = &role->service(), .workers = arguments.settings.store.workers}, endpoints));
  SL_TRY(role->join());
  const Shown shown = SL_TRY(
      show(site, arguments, {{"store", role.get()}}, {{"store", server.get()}}, *way.network));
  const Status ended = run_role(*role, arguments, "blocks at " + endpoints.front());
  server->stop();
  return ended;
}

Status run_mount(const Program& program, Arguments& arguments) {
  SL_TRY(read_settings(program, arguments));
  SL_TRY(hold(program, arguments));
  prepare(arguments);
  const Reach way = SL_TRY(reach(program, arguments.settings));
  const auto role = SL_TRY(
      wire::start_mount(*way.network, *way.meta, arguments.settings.mount, arguments.held.get()));
  const Result<wire::Site> site = program.site();
  const Shown shown = SL_TRY(show(site, arguments, {{"mount", role.get()}}, {}, *way.network));
  return run_role(*role, arguments, arguments.settings.mount.mountpoint);
}

Status run_keeper(const Program& program, Arguments& arguments) {
  SL_TRY(prepare(program, arguments));
  const Reach way = SL_TRY(reach(program, arguments.settings));
  const auto role = SL_TRY(wire::start_keeper(*way.network, *way.meta, arguments.settings.keeper));
  const Result<wire::Site> site = program.site();
  const Shown shown = SL_TRY(show(site, arguments, {{"keeper", role.get()}}, {}, *way.network));
  return run_role(*role, arguments, "keeper");
}

void print_ready(const wire::Site& site, Arguments& arguments) {
  if (!arguments.first()) return;
  std::printf("%s  %s  (site %s; Ctrl-C or `starlane --dir %s down` stops it)\n",
              styled("ready", Style::green).c_str(), arguments.settings.mount.mountpoint.c_str(),
              site.directory().c_str(), site.directory().c_str());
  std::fflush(stdout);
}

/// --metrics of the role that is started as number `place`: the port given, and those after it.
std::string metrics_of(const std::string& address, std::uint32_t place) {
  const std::size_t port = address.rfind(':') + 1;  // 0 where there is no colon
  const int first = std::atoi(address.c_str() + port);
  return first == 0 ? address
                    : address.substr(0, port) + std::to_string(first + static_cast<int>(place));
}

Status up_separate(const wire::Site& site, Arguments& arguments) {
  wire::Supervisor supervisor(site);
  std::uint32_t started = 0;
  const auto start = [&](const std::string& role, RoleKind kind, std::vector<std::string> more) {
    std::vector<std::string> words{"--dir", site.directory().string(), role};
    words.insert(words.end(), more.begin(), more.end());
    for (std::string& word : forwarded(*arguments.command, kind)) {
      if (word.starts_with("--metrics="))
        word = "--metrics=" + metrics_of(word.substr(10), started);
      words.push_back(std::move(word));
    }
    ++started;
    return supervisor.start(role, std::move(words));
  };
  SL_TRY(start("meta", RoleKind::meta, {}));
  SL_TRY(start("store", RoleKind::store, {}));
  SL_TRY(start("keeper", RoleKind::keeper, {}));
  SL_TRY(start("mount", RoleKind::mount, {arguments.settings.mount.mountpoint}));
  arguments.tell_ready({});
  print_ready(site, arguments);
  supervisor.watch();
  supervisor.stop();
  return {};
}

Status up_together(const wire::Site& site, Arguments& arguments) {
  const UniqueFd meta_lock = SL_TRY(site.lock("meta"));
  const UniqueFd store_lock = SL_TRY(site.lock("store"));
  const auto network =
      SL_TRY(wire::Network::open(site.key_file().string(), arguments.settings.bulk()));
  const auto meta = SL_TRY(wire::MetaRole::start(site, arguments.settings.meta));
  const auto store = SL_TRY(wire::StoreRole::open(site, meta->service(), arguments.settings.store));
  for (const std::string& endpoint : {site.endpoint("store"), store->endpoint()})
    network->add_local(endpoint, store->service());
  SL_TRY(meta->sync_before_flush(*network));
  std::vector<std::string> meta_endpoints = arguments.settings.meta.listen;
  meta_endpoints.push_back(site.endpoint("meta"));
  std::vector<std::string> store_endpoints = arguments.settings.store.listen;
  store_endpoints.push_back(site.endpoint("store"));
  const auto meta_server = SL_TRY(network->serve(
      {.meta = &meta->service(), .workers = arguments.settings.meta.workers}, meta_endpoints));
  const auto store_server = SL_TRY(network->serve(
      {.blocks = &store->service(), .workers = arguments.settings.store.workers}, store_endpoints));
  SL_TRY(store->join());
  const auto keeper =
      SL_TRY(wire::start_keeper(*network, meta->service(), arguments.settings.keeper));
  const auto mount = SL_TRY(
      wire::start_mount(*network, meta->service(), arguments.settings.mount, arguments.held.get()));
  const Shown shown =
      SL_TRY(show(site, arguments,
                  {{"meta", meta.get()},
                   {"store", store.get()},
                   {"keeper", keeper.get()},
                   {"mount", mount.get()}},
                  {{"meta", meta_server.get()}, {"store", store_server.get()}}, *network));
  arguments.tell_ready({});
  print_ready(site, arguments);
  wait_for_end(mount->ended(), arguments.held.get());
  leave_if_replaced(*mount, arguments);
  Status first = mount->stop();
  for (const Status& next :
       {keeper->stop(), (store_server->stop(), meta_server->stop(), meta->stop()), store->stop()})
    if (first.ok()) first = next;
  return first;
}

/// A mount must not hide what it is made of.
Status check_apart(const std::string& mountpoint, const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path over = fs::weakly_canonical(mountpoint, ignored);
  const fs::path under = fs::weakly_canonical(directory, ignored);
  const fs::path relative = under.lexically_relative(over);
  if (relative.empty() || *relative.begin() == "..") return {};
  return Status(Errc::invalid, "a mount on " + mountpoint + " would hide " + directory +
                                   "; choose a directory that does not contain it");
}

Status check_all_apart(const Program& program, const Settings& settings) {
  SL_TRY(check_apart(settings.mount.mountpoint, program.globals().directory));
  for (const std::string& directory : settings.store.directories)
    SL_TRY(check_apart(settings.mount.mountpoint, directory));
  return {};
}

Status up(const Program& program, Arguments& arguments) {
  if (arguments.print) {
    if (!program.globals().directory.empty())
      SL_TRY(apply_file(*arguments.command,
                        std::filesystem::path(program.globals().directory) / "starlane.toml"));
    std::printf("%s", print_config(*arguments.command).c_str());
    return {};
  }
  if (program.globals().directory.empty())
    return Status(Errc::invalid, "where? Give --dir DIR, an empty directory or a site");
  if (arguments.settings.mount.mountpoint.empty())
    return Status(Errc::invalid, "where is it mounted? Give --mount DIR, a directory");
  SL_TRY(read_settings(program, arguments));
  const bool held = wire::Held::expected();
  // The holder has looked; to its daemon the mount is out of bounds, for nobody serves it yet.
  if (!held) SL_TRY(check_all_apart(program, arguments.settings));
  const wire::Site site = SL_TRY(wire::Site::open_or_create(program.globals().directory));
  UniqueFd lock;  // of the holder, where there is one: it is there all the time
  if (!held) lock = SL_TRY(site.lock("up"));
  if (!arguments.separate) SL_TRY(hold(program, arguments));
  prepare(arguments);
  start_logging(
      {.role = "up", .file = site.log("up").string(), .level = arguments.settings.log_level});
  return arguments.separate ? up_separate(site, arguments) : up_together(site, arguments);
}

Status down(const Program& program) {
  const wire::Site site = SL_TRY(program.site());
  bool stopped = false;
  for (const char* role : {"up", "meta", "store"}) {
    const std::filesystem::path file = site.directory() / "run" / (std::string(role) + ".lock");
    const UniqueFd fd(::open(file.c_str(), O_RDWR | O_CLOEXEC));
    if (!fd || ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) continue;  // nobody holds it
    long pid = 0;
    std::ifstream(file) >> pid;
    if (pid <= 1 || ::kill(static_cast<pid_t>(pid), SIGTERM) != 0)
      return system_error("cannot stop process " + std::to_string(pid), errno);
    const Deadline deadline = Deadline::after(std::chrono::seconds(60));
    while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (deadline.passed())
        return Status(Errc::timeout, "process " + std::to_string(pid) +
                                         " has not stopped within a minute; its log is in " +
                                         site.log(role).parent_path().string());
      std::this_thread::sleep_for(Milliseconds(20));
    }
    stopped = true;
  }
  if (program.globals().json)
    std::printf("{\"stopped\":%s}\n", stopped ? "true" : "false");
  else
    std::printf(stopped ? "stopped\n" : "nothing of this site was running\n");
  return {};
}

Status umount(const std::string& mountpoint) {
  if (::umount2(mountpoint.c_str(), UMOUNT_NOFOLLOW) == 0) return {};
  if (errno == EPERM) {
    ::execlp("fusermount3", "fusermount3", "-u", mountpoint.c_str(), static_cast<char*>(nullptr));
    return Status(Errc::not_permitted,
                  "only root can unmount it, or fusermount3, which is not installed");
  }
  return not_unmounted(mountpoint, errno);
}

std::shared_ptr<Arguments> with_role(CLI::App* command, std::initializer_list<RoleKind> roles,
                                     const std::shared_ptr<Arguments>& arguments) {
  arguments->command = command;
  for (const RoleKind role : roles) add_settings(*command, role, arguments->settings);
  add_common_settings(*command, arguments->settings);
  command->add_option("--ready-fd", arguments->ready_fd)->group("");
  return arguments;
}

void add_role(Program& program, const char* name, const char* text, RoleKind role,
              Status (*run)(const Program&, Arguments&)) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = program.add(program.app(), name, text, "", [&program, arguments, run] {
    return told(*arguments, run(program, *arguments));
  });
  with_role(command, {role}, arguments);
  if (role == RoleKind::mount)
    command
        ->add_option("mountpoint", arguments->settings.mount.mountpoint,
                     "A directory; what lies in it is hidden meanwhile")
        ->required();
}

}  // namespace

void add_running_commands(Program& program) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = program.add(
      program.app(), "up", "Runs everything on this machine, in the foreground",
      "  starlane up --dir /srv/starlane --mount /mnt/starlane\n"
      "  starlane up --dir ./site --mount ./mnt --separate --store-dir /disk1 --store-dir /disk2\n"
      "Settings may also stand in DIR/starlane.toml, by the names of their flags; --print-config "
      "shows them.\n",
      [&program, arguments] { return told(*arguments, up(program, *arguments)); });
  with_role(command, {RoleKind::meta, RoleKind::store, RoleKind::mount, RoleKind::keeper},
            arguments);
  command->add_option("--mount", arguments->settings.mount.mountpoint,
                      "Where it is mounted: a directory; what lies in it is hidden meanwhile");
  command->add_flag("--separate", arguments->separate,
                    "Each role a process, restarted when it dies");
  command->add_flag("--print-config", arguments->print, "Print the settings and end");
  program.add(program.app(), "down", "Stops what `up` started", "",
              [&program] { return down(program); });

  add_role(program, "meta", "Serves metadata: one role by hand", RoleKind::meta, run_meta);
  add_role(program, "store", "Serves blocks: one role by hand", RoleKind::store, run_store);
  add_role(program, "keeper", "Does background work: one role by hand", RoleKind::keeper,
           run_keeper);
  add_role(program, "mount", "Mounts a site: one role by hand", RoleKind::mount, run_mount);
  auto mountpoint = std::make_shared<std::string>();
  program
      .add(program.app(), "umount", "Unmounts", "", [mountpoint] { return umount(*mountpoint); })
      ->add_option("mountpoint", *mountpoint)
      ->required();
}

}  // namespace starlane::cli
