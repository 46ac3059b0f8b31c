// A mount as a role: sessions, bytes, node cache, names, and the kernel's front end over them.
#include <sys/eventfd.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "client/make_file_io.h"
#include "client/mount.h"
#include "client/takeover/ledger.h"
#include "client/write/arena.h"
#include "common/log.h"
#include "common/unique_fd.h"
#include "fuse/decode.h"
#include "fuse/session.h"
#include "wire/metered.h"
#include "wire/mount_watch.h"
#include "wire/roles.h"

namespace starlane::wire {
namespace {

constexpr Nanoseconds kPatience = std::chrono::seconds(30);
constexpr std::chrono::milliseconds kDrainLimit{2000};  // the rest is sent again by the kernel

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

/// What passes from one daemon of the mount to the next; nothing of it where there is no holder.
struct Estate {
  Held* held = nullptr;
  bool left = false;  // by an earlier daemon
  std::unique_ptr<client::Ledger> ledger;
  UniqueFd arena;

  int kept(fuse::HeldItem item) const { return left ? held->kept(item) : -1; }

  static Result<Estate> open(Held* held, std::uint64_t arena_bytes) {
    Estate estate;
    if (held == nullptr) return estate;
    estate.held = held;
    estate.left = held->kept(fuse::HeldItem::device) >= 0;
    UniqueFd fresh;
    if (!estate.left) fresh = SL_TRY(client::Ledger::create());
    const int ledger = estate.left ? held->kept(fuse::HeldItem::ledger) : fresh.get();
    estate.ledger = SL_TRY(client::Ledger::open(ledger));
    estate.arena = SL_TRY(client::Arena::create(arena_bytes));
    if (estate.left) return estate;
    SL_TRY(held->keep(fuse::HeldItem::ledger, ledger));
    SL_TRY(held->keep(fuse::HeldItem::arena, estate.arena.get()));
    return estate;
  }
  Status keep_mount(const fuse::Mount& mount) const {
    // Without it the mount is held all the same, only not upgraded.
    const auto control = fuse::listen_for_control(mount.facts().device_number);
    if (control.ok()) SL_TRY(held->keep(fuse::HeldItem::control, control.value().get()));
    return held->keep(fuse::HeldItem::device, mount.device(), mount.facts().device_number);
  }
};

class MountRole final : public Role {
 public:
  static Result<std::unique_ptr<Role>> start(Network& network, MetaService& meta,
                                             const MountOptions& options, Held* held) {
    const std::vector<fuse::Bind> binds = SL_TRY(parse_binds(options.binds));
    Estate opened = SL_TRY(Estate::open(held, options.dirty_bytes));
    std::unique_ptr<MountRole> role(new MountRole(network, meta, options.slow, std::move(opened)));
    const Estate& estate = role->estate_;
    client::SessionOptions session;
    session.ledger = estate.ledger.get();
    session.host = host_name();
    session.purpose = "mount " + options.mountpoint;
    const Nanoseconds patience = estate.left ? Nanoseconds::max() : kPatience;
    role->sessions_ =
        SL_TRY(client::Sessions::open(role->meta_, system_clock(), session, patience));
    client::FileIoOptions io;
    io.cache_bytes = options.block_cache_bytes;
    io.arena_bytes = options.dirty_bytes;
    io.arena_fd = estate.arena.get();
    io.taken_over = estate.left;
    io.ledger = estate.ledger.get();
    io.fetch_threads = options.fetch_threads;
    io.meters = role->meters_;
    role->io_ = SL_TRY(client::make_file_io(
        role->meta_, [here = role.get()](const std::string& at) { return here->blocks(at); },
        *role->sessions_, role->sessions_->requests(), io));
    client::NodeCacheOptions cache;
    cache.passthrough = options.passthrough;
    cache.budget_bytes = options.node_cache_bytes;
    cache.ledger = estate.ledger.get();
    cache.cache_left = estate.kept(fuse::HeldItem::cache);
    cache.view_left = estate.kept(fuse::HeldItem::cache_view);
    if (held != nullptr)
      cache.keep = [held](int files, int view) {
        if (held->keep(fuse::HeldItem::cache, files).ok())
          static_cast<void>(held->keep(fuse::HeldItem::cache_view, view));
      };
    role->incarnations_ = client::make_incarnations(*role->io_, cache);
    client::MountOptions names;
    names.meters = role->meters_;
    names.ledger = estate.ledger.get();
    names.tree_names_bytes = options.tree_names_bytes;
    names.arena_left = estate.kept(fuse::HeldItem::arena);
    names.replayed = [&estate] {
      static_cast<void>(estate.held->keep(fuse::HeldItem::arena, estate.arena.get()));
    };
    role->vfs_ = client::make_mount(*role->sessions_, *role->io_, *role->incarnations_, names);
    fuse::SessionOptions front;
    front.mountpoint = options.mountpoint;
    front.binds = binds;
    front.passthrough = options.passthrough;
    front.quick_wake = options.quick_wake;
    front.slow = options.slow;
    front.ledger = estate.ledger.get();
    front.device = estate.kept(fuse::HeldItem::device);
    front.after_crash = held != nullptr && held->after_crash();
    if (held != nullptr)
      front.keep = [&estate](const fuse::Mount& mount) { return estate.keep_mount(mount); };
    role->front_ = SL_TRY(fuse::Session::start(*role->vfs_, front));
    role->watch_ = std::make_unique<MountWatch>(role->front_->tap(), role->front_->mountpoint());
    if (!options.access_log.empty()) {
      const Status begun = role->watch_->begin_log(options.access_log);
      if (!begun.ok() && !estate.left) return begun;  // a mount in use is worth more than its log
      if (!begun.ok()) SL_LOG(warn, "event=no_access_log cause=\"{}\"", begun.to_string());
    }
    if (held != nullptr) held->check_with([raw = role.get()] { (void)raw->figures(); });
    role->watch();
    return std::unique_ptr<Role>(std::move(role));
  }

  ~MountRole() override {
    if (estate_.held != nullptr) estate_.held->check_with(nullptr);
    [[maybe_unused]] const Status ignored = stop();
    if (watcher_.joinable()) watcher_.join();
  }

  Status stop() override { return front_ ? front_->stop() : Status(); }
  void leave() override { front_->drain(kDrainLimit); }
  int ended() const override { return ended_.get(); }

  std::string figures() override {
    const client::FileIo::Figures io = io_->figures();
    const client::Incarnations::Figures cache = incarnations_->figures();
    const fuse::Session::Figures front = front_->figures();
    nlohmann::json limitations = nlohmann::json::array();
    for (const std::string& text : front_->limitations()) limitations.push_back(text);
    return nlohmann::json{{"mountpoint", front_->mountpoint()},
                          {"passthrough", cache.enabled ? "on" : "off: " + cache.reason},
                          {"quick_wake", front_->quick_wake()},
                          {"limitations", limitations},
                          {"holder", holder()},
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

  Result<std::string> ask(const std::string& method, const std::string& page,
                          const Query& query) override {
    return watch_->ask(method, page, query);
  }

  void measure(metrics::Exposition& out) override {
    measure_operations(out);
    measure_front(out);
    measure_caches(out);
    meta_.measure(out, "starlane_client_meta");
    block_meters_.measure(out, "starlane_client_store");
  }

 private:
  MountRole(Network& network, MetaService& meta, Milliseconds slow, Estate estate)
      : network_(network),
        slow_(slow),
        meta_(meta, {"client of meta", slow}),
        estate_(std::move(estate)) {}

  std::shared_ptr<BlockService> blocks(const std::string& endpoint) {
    auto service = network_.blocks(endpoint);
    if (!service) return nullptr;
    return std::make_shared<MeteredBlocks>(std::move(service), block_meters_,
                                           Metering{"client of store", slow_});
  }

  void measure_operations(metrics::Exposition& out) {
    fuse::Operations& operations = front_->operations();
    for (std::uint32_t opcode = 0; opcode < fuse::Operations::kKinds; ++opcode) {
      const metrics::Counted took = operations.of(opcode).took.counted();
      if (took.count() == 0) continue;
      const metrics::Labels labels{{"operation", std::string(fuse::name_of_opcode(opcode))}};
      out.histogram("starlane_fuse_operation_seconds",
                    "Time of the kernel's requests, from reading them to the answer", took,
                    metrics::Unit::seconds, labels);
      out.counter("starlane_fuse_operation_failures_total",
                  "Requests answered with an errno; names that are not there too",
                  operations.of(opcode).failed.value(), labels);
    }
    out.counter("starlane_fuse_read_bytes_total", "Bytes of answers to READ",
                operations.read_bytes.value());
    out.counter("starlane_fuse_written_bytes_total", "Bytes of WRITE requests",
                operations.written_bytes.value());
    out.histogram("starlane_fuse_queue_seconds",
                  "Time that requests waited because every thread was busy",
                  operations.queued.counted(), metrics::Unit::seconds);
  }

  void measure_front(metrics::Exposition& out) {
    const fuse::Session::Figures front = front_->figures();
    const auto gauge = [&](const char* name, const char* help, std::uint64_t value) {
      out.gauge(name, help, static_cast<double>(value));
    };
    out.counter("starlane_fuse_requests_total", "Requests of the kernel", front.requests);
    gauge("starlane_fuse_in_flight", "Requests being served or queued here", front.in_flight);
    gauge("starlane_fuse_threads", "Threads that serve", front.threads);
    gauge("starlane_fuse_backing_files", "Files that the kernel reads itself (passthrough)",
          front.backing_files);
    if (front.waiting >= 0)
      gauge("starlane_fuse_kernel_waiting", "Requests unanswered, those in the kernel's queue too",
            static_cast<std::uint64_t>(front.waiting));
    out.counter("starlane_fuse_tap_dropped_total",
                "Operations that an access log or a profile missed", front_->tap().dropped());
  }

  void measure_caches(metrics::Exposition& out) {
    const client::FileIo::Figures io = io_->figures();
    const client::Incarnations::Figures cache = incarnations_->figures();
    const auto gauge = [&](const char* name, const char* help, std::uint64_t value) {
      out.gauge(name, help, static_cast<double>(value));
    };
    const auto hits = [&](const char* what, const metrics::Counter& hit,
                          const metrics::Counter& missed) {
      for (const bool yes : {true, false})
        out.counter("starlane_client_cache_lookups_total",
                    "Questions to the caches of names and attributes", (yes ? hit : missed).value(),
                    {{"cache", what}, {"outcome", yes ? "hit" : "miss"}});
    };
    hits("names", meters_->name_hits, meters_->name_misses);
    hits("attributes", meters_->attribute_hits, meters_->attribute_misses);
    out.counter("starlane_client_block_cache_hit_bytes_total", "Bytes read from the block cache",
                meters_->block_hit_bytes.value());
    out.counter("starlane_client_block_cache_miss_bytes_total", "Bytes that readers waited for",
                meters_->block_miss_bytes.value());
    gauge("starlane_client_block_cache_bytes", "Memory of the block cache in use", io.cached_bytes);
    gauge("starlane_client_dirty_bytes", "Written and not stored yet", io.dirty_bytes);
    gauge("starlane_client_dirty_limit_bytes", "Writers wait beyond that", io.dirty_limit_bytes);
    gauge("starlane_node_cache_files", "Files in the node cache", cache.files);
    gauge("starlane_node_cache_bytes", "Bytes in the node cache", cache.bytes);
    gauge("starlane_node_cache_budget_bytes", "Most that it may take", cache.budget_bytes);
    out.counter("starlane_node_cache_filled_bytes_total", "Bytes fetched into the node cache",
                cache.filled_bytes);
    out.counter("starlane_node_cache_passthrough_opens_total", "Opens served by the kernel alone",
                cache.passthrough_opens);
  }

  std::string holder() const {
    if (estate_.held == nullptr) return "off: --no-hold, or not the mount's own process";
    if (!front_->kept()) return "off: this kernel cannot send requests again (Linux 6.9)";
    const std::uint64_t before = estate_.held->generation();
    std::string text = "process " + std::to_string(estate_.held->holder());
    if (before != 0)
      text += ", daemon " + std::to_string(before + 1) + ", after " + estate_.held->cause();
    return text;
  }

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
  const Milliseconds slow_;
  MeteredMeta meta_;
  BlockMeters block_meters_;
  const std::shared_ptr<client::Meters> meters_ = std::make_shared<client::Meters>();
  const Estate estate_;  // what the others write into
  std::unique_ptr<client::Sessions> sessions_;
  std::unique_ptr<client::FileIo> io_;
  std::unique_ptr<client::Incarnations> incarnations_;
  std::unique_ptr<client::Vfs> vfs_;
  std::unique_ptr<fuse::Session> front_;
  std::unique_ptr<MountWatch> watch_;
  UniqueFd ended_;
  std::thread watcher_;
};

}  // namespace

Result<std::unique_ptr<Role>> start_mount(Network& network, MetaService& meta,
                                          const MountOptions& options, Held* held) {
  return MountRole::start(network, meta, options, held);
}

}  // namespace starlane::wire
