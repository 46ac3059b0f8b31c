// A mount as a role: sessions, bytes, node cache, names, and the kernel's front end over them.
#include <sys/eventfd.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "client/make_file_io.h"
#include "client/mount.h"
#include "common/unique_fd.h"
#include "fuse/session.h"
#include "wire/roles.h"

namespace starlane::wire {
namespace {

constexpr Nanoseconds kPatience = std::chrono::seconds(30);

Result<std::vector<fuse::Bind>> parse_binds(const std::vector<std::string>& texts) {
  std::vector<fuse::Bind> binds;
  for (const std::string& text : texts) {
    const std::size_t at = text.find('=');
    if (at == std::string::npos || at == 0 || at + 1 == text.size())
      return Status(Errc::invalid,
                    "--bind takes WHAT=WHERE, as volumes/work=/workspace, not " + text);
    binds.push_back({text.substr(0, at), text.substr(at + 1)});
  }
  return binds;
}

class MountRole final : public Role {
 public:
  static Result<std::unique_ptr<Role>> start(Network& network, MetaService& meta,
                                             const MountOptions& options) {
    const std::vector<fuse::Bind> binds = SL_TRY(parse_binds(options.binds));
    std::unique_ptr<MountRole> role(new MountRole(network));
    client::SessionOptions session;
    session.host = host_name();
    session.purpose = "mount " + options.mountpoint;
    role->sessions_ = SL_TRY(client::Sessions::open(meta, system_clock(), session, kPatience));
    client::FileIoOptions io;
    io.cache_bytes = options.block_cache_bytes;
    io.arena_bytes = options.dirty_bytes;
    io.fetch_threads = options.fetch_threads;
    role->io_ = SL_TRY(client::make_file_io(
        meta, [&network](const std::string& endpoint) { return network.blocks(endpoint); },
        *role->sessions_, role->sessions_->requests(), io));
    client::NodeCacheOptions cache;
    cache.passthrough = options.passthrough;
    cache.budget_bytes = options.node_cache_bytes;
    role->incarnations_ = client::make_incarnations(*role->io_, cache);
    role->vfs_ = client::make_mount(*role->sessions_, *role->io_, *role->incarnations_, {});
    fuse::SessionOptions front;
    front.mountpoint = options.mountpoint;
    front.binds = binds;
    front.passthrough = options.passthrough;
    role->front_ = SL_TRY(fuse::Session::start(*role->vfs_, front));
    role->watch();
    return std::unique_ptr<Role>(std::move(role));
  }

  ~MountRole() override {
    [[maybe_unused]] const Status ignored = stop();
    if (watcher_.joinable()) watcher_.join();
  }

  Status stop() override { return front_ ? front_->stop() : Status(); }
  int ended() const override { return ended_.get(); }

  std::string figures() override {
    const client::FileIo::Figures io = io_->figures();
    const client::Incarnations::Figures cache = incarnations_->figures();
    const fuse::Session::Figures front = front_->figures();
    nlohmann::json limitations = nlohmann::json::array();
    for (const std::string& text : front_->limitations()) limitations.push_back(text);
    return nlohmann::json{{"mountpoint", front_->mountpoint()},
                          {"passthrough", cache.enabled ? "on" : "off: " + cache.reason},
                          {"limitations", limitations},
                          {"bulk", network_.bulk()},
                          {"requests", front.requests},
                          {"in_flight", front.in_flight},
                          {"fetched_bytes", io.fetched_bytes},
                          {"put_bytes", io.put_bytes},
                          {"dirty_bytes", io.dirty_bytes},
                          {"block_cache_bytes", io.cached_bytes},
                          {"node_cache_files", cache.files},
                          {"node_cache_bytes", cache.bytes},
                          {"node_cache_budget_bytes", cache.budget_bytes},
                          {"node_cache_filled_bytes", cache.filled_bytes},
                          {"passthrough_opens", cache.passthrough_opens}}
        .dump();
  }

 private:
  explicit MountRole(Network& network) : network_(network) {}

  /// Tells `ended` when somebody unmounted it.
  void watch() {
    ended_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    watcher_ = std::thread([this] {
      while (!front_->wait_unmounted(std::chrono::hours(1))) {
      }
      const std::uint64_t one = 1;
      [[maybe_unused]] const auto n = ::write(ended_.get(), &one, sizeof one);
    });
  }

  Network& network_;
  std::unique_ptr<client::Sessions> sessions_;
  std::unique_ptr<client::FileIo> io_;
  std::unique_ptr<client::Incarnations> incarnations_;
  std::unique_ptr<client::Vfs> vfs_;
  std::unique_ptr<fuse::Session> front_;
  UniqueFd ended_;
  std::thread watcher_;
};

}  // namespace

Result<std::unique_ptr<Role>> start_mount(Network& network, MetaService& meta,
                                          const MountOptions& options) {
  return MountRole::start(network, meta, options);
}

}  // namespace starlane::wire
