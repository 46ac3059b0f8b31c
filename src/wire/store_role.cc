// The block store of a site: its targets, opened, served and kept on the cluster map.
#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "block/identity.h"
#include "block/store.h"
#include "common/log.h"
#include "common/mutex.h"
#include "common/thread_pool.h"
#include "wire/metered.h"
#include "wire/roles.h"

namespace starlane::wire {
namespace {

constexpr Nanoseconds kPatience = std::chrono::seconds(30);
constexpr Nanoseconds kLastFlush = std::chrono::seconds(5);
constexpr Nanoseconds kReportInterval = std::chrono::seconds(2);

Call call_within(Nanoseconds limit) {
  Call call;
  call.deadline = Deadline::after(limit);
  return call;
}

/// The map, waiting for a metadata server that is only just starting.
Result<pb::ClusterMap> first_map(MetaService& meta) {
  const Deadline deadline = Deadline::after(kPatience);
  for (;;) {
    pb::ClusterMap map;
    const Status status = meta.cluster_map(call_within(kPatience), {}, &map);
    if (status.ok()) return map;
    if ((status.code() != Errc::unavailable && status.code() != Errc::timeout) || deadline.passed())
      return status;
    std::this_thread::sleep_for(Milliseconds(50));
  }
}

/// The id of a target that is there already.
std::optional<TargetId> id_in(const std::string& directory) {
  std::ifstream in(std::filesystem::path(directory) / "identity");
  std::ostringstream text;
  text << in.rdbuf();
  const Result<block::Identity> identity = block::decode_identity(text.str());
  if (!in || !identity.ok()) return std::nullopt;  // opening it says what is wrong
  return identity->target;
}

class StoreRoleImpl final : public StoreRole {
 public:
  StoreRoleImpl(std::shared_ptr<block::Store> store, MetaService& meta, std::string endpoint,
                Milliseconds slow)
      : store_(std::move(store)),
        metered_(store_, meters_, {"store", slow}),
        meta_(meta),
        endpoint_(std::move(endpoint)) {}

  ~StoreRoleImpl() override { stop_reporting(); }

  Status join() override {
    SL_TRY(report());
    reporter_ = std::thread([this] { report_while_running(); });
    return {};
  }

  BlockService& service() override { return metered_; }
  const std::string& endpoint() const override { return endpoint_; }

  /// Metadata that names its blocks becomes durable while they can still be synced: afterwards the
  /// metadata server could only note that it was left alone.
  Status stop() override {
    stop_reporting();
    pb::Empty nothing;
    const Status flushed = meta_.flush(call_within(kLastFlush), pb::FlushRequest(), &nothing);
    if (!flushed.ok()) SL_LOG(debug, "not flushed at the end error=\"{}\"", flushed.to_string());
    return {};
  }

  std::string figures() override {
    nlohmann::json out = nlohmann::json::object();
    const auto infos = store_->targets({});
    if (!infos.ok()) return out.dump();
    for (const TargetInfo& info : *infos) {
      const auto counters = store_->counters(info.target);
      if (!counters.ok()) continue;
      out["target " + std::to_string(info.target.value)] =
          info.device + ", puts " + std::to_string(counters->puts) + ", gets " +
          std::to_string(counters->gets) + ", corrupt " + std::to_string(counters->corrupt) +
          ", io errors " + std::to_string(counters->io_errors);
    }
    return out.dump();
  }

  void measure(metrics::Exposition& out) override {
    meters_.measure(out, "starlane_store");
    const auto infos = store_->targets({});
    if (!infos.ok()) return;
    for (const TargetInfo& info : *infos) measure_target(out, info);
  }

 private:
  void measure_target(metrics::Exposition& out, const TargetInfo& info) const {
    const metrics::Labels labels{{"target", std::to_string(info.target.value)}};
    const auto gauge = [&](const char* name, const char* help, std::uint64_t value) {
      out.gauge(name, help, static_cast<double>(value), labels);
    };
    gauge("starlane_store_capacity_bytes", "Size of the device", info.capacity_bytes);
    gauge("starlane_store_free_bytes", "Free on the device", info.free_bytes);
    gauge("starlane_store_stored_bytes", "Bytes of blocks stored", info.stored_bytes);
    gauge("starlane_store_blocks", "Blocks stored", info.blocks);
    gauge("starlane_store_healthy", "1: it serves", info.healthy ? 1 : 0);
    const auto counters = store_->counters(info.target);
    if (!counters.ok()) return;
    out.counter("starlane_store_removed_slices_total", "Slices removed", counters->removed_slices,
                labels);
    out.counter("starlane_store_corrupt_total", "Bad copies found", counters->corrupt, labels);
    out.counter("starlane_store_io_errors_total", "Failures of the device", counters->io_errors,
                labels);
  }

  Status report() {
    const std::vector<TargetInfo> infos = SL_TRY(store_->targets({}));
    pb::RegisterTargetsRequest request;
    for (const TargetInfo& info : infos) {
      pb::Target* target = request.add_targets();
      target->set_id(info.target.value);
      target->set_endpoint(endpoint_);
      target->set_weight(
          static_cast<std::uint32_t>(std::max<std::uint64_t>(1, info.capacity_bytes >> 30)));
      target->set_state("up");
      target->set_domain(endpoint_);
      target->set_capacity_bytes(info.capacity_bytes);
      target->set_free_bytes(info.free_bytes);
    }
    pb::ClusterMap map;
    return meta_.register_targets(call_within(kPatience), request, &map);
  }

  void report_while_running() {
    name_this_thread("store-report");
    MutexLock lock(m_);
    while (!stopping_) {
      wake_.wait_for(m_, kReportInterval);
      if (stopping_) return;
      m_.unlock();
      const Status status = report();
      if (!status.ok()) SL_LOG(debug, "capacity not reported error=\"{}\"", status.to_string());
      m_.lock();
    }
  }

  void stop_reporting() {
    {
      MutexLock lock(m_);
      stopping_ = true;
      wake_.notify_all();
    }
    if (reporter_.joinable()) reporter_.join();
  }

  const std::shared_ptr<block::Store> store_;
  BlockMeters meters_;
  MeteredBlocks metered_;
  MetaService& meta_;
  const std::string endpoint_;
  std::thread reporter_;
  Mutex m_;
  CondVar wake_;
  bool stopping_ SL_GUARDED_BY(m_) = false;
};

}  // namespace

Result<std::unique_ptr<StoreRole>> StoreRole::open(const Site& site, MetaService& meta,
                                                   const StoreOptions& options) {
  const pb::ClusterMap map = SL_TRY(first_map(meta));
  std::uint32_t highest = 0;
  for (const pb::Target& target : map.targets()) highest = std::max(highest, target.id());
  block::StoreOptions store;
  store.cluster = map.cluster();
  const std::vector<std::string> own{site.default_target().string()};
  for (const std::string& directory : options.directories.empty() ? own : options.directories) {
    block::TargetOptions target;
    target.directory = directory;
    target.id = id_in(directory).value_or(TargetId(++highest));
    store.targets.push_back(std::move(target));
  }
  auto opened = SL_TRY(block::Store::open(std::move(store)));
  std::string endpoint = options.advertise;
  if (endpoint.empty())
    endpoint = options.listen.empty() ? site.endpoint("store") : options.listen.front();
  if (endpoint.starts_with("tcp:0.0.0.0:") || endpoint.starts_with("tcp:[::]:"))
    return Status(Errc::invalid, "clients cannot connect to " + endpoint +
                                     "; say where they reach this store with --store-advertise");
  return std::unique_ptr<StoreRole>(
      new StoreRoleImpl(std::move(opened), meta, std::move(endpoint), options.slow));
}

}  // namespace starlane::wire
