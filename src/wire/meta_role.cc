// Metadata of a site: the engine in its directory, and the namespace over it.
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "common/log.h"
#include "common/mutex.h"
#include "common/thread_pool.h"
#include "kv/rocksdb/rocksdb_engine.h"
#include "meta/members/flush_marks.h"
#include "meta/server.h"
#include "wire/metered.h"
#include "wire/roles.h"
#include "wire/store_syncs.h"

namespace starlane::wire {
namespace {

/// What was only ordered becomes durable within this: all that `sync` can mean here.
constexpr Nanoseconds kFlushInterval = std::chrono::seconds(1);
/// A store that is away for longer is worth a line in the log.
constexpr Nanoseconds kPatience = std::chrono::seconds(5);

class MetaRoleImpl final : public MetaRole {
 public:
  MetaRoleImpl(std::unique_ptr<kv::Engine> engine, const meta::Options& options, Milliseconds slow)
      : engine_(std::move(engine)),
        server_(*engine_, system_clock(), options),
        marks_(*engine_, system_clock()),
        metered_(server_, {"meta", slow}) {}

  ~MetaRoleImpl() override { stop_flushing(); }

  MetaService& service() override { return metered_; }

  Status sync_before_flush(Network& network) override {
    const auto find = [&network](const std::string& endpoint) -> StoreSyncs::Place {
      if (auto here = network.local_blocks(endpoint)) return {std::move(here), true};
      return {network.blocks(endpoint), false};
    };
    stores_ = std::make_unique<StoreSyncs>(find, StoreSyncs::Options());
    engine_->set_before_flush([this] { return sync_stores(); });
    SL_TRY(marks_.begin());
    flusher_ = std::thread([this] { flush_while_running(); });
    return {};
  }

  Status stop() override {
    stop_flushing();
    SL_TRY(engine_->flush());
    if (stores_ == nullptr || alone_since_) return {};
    SL_TRY(marks_.end());
    return engine_->flush();
  }

  std::string figures() override {
    const kv::Engine::Description engine = engine_->describe();
    return nlohmann::json{{"engine", engine.name}, {"bytes_on_device", engine.bytes_on_device}}
        .dump();
  }

  void measure(metrics::Exposition& out) override {
    metered_.measure(out, "starlane_meta");
    out.gauge("starlane_engine_device_bytes", "Bytes of the engine on its device",
              static_cast<double>(engine_->describe().bytes_on_device));
    if (const kv::Meters* meters = engine_->meters()) measure_engine(out, *meters);
    measure_deleted(out);
  }

 private:
  /// Within a flush of the engine, of which there is one at a time.
  Status sync_stores() {
    const std::uint64_t asked = meta::to_ns(system_clock().wall());
    pb::ClusterMap map;
    SL_TRY(server_.cluster_map({}, {}, &map));
    const StoreSyncs::Outcome outcome = stores_->sync(map);
    SL_TRY(outcome.failure);
    note_left_out(outcome.left_out);
    return alone_since_ ? Status() : marks_.synced(asked);
  }

  /// Said once it lasts: at a start, and while a store is restarted, it is nothing.
  void note_left_out(const std::vector<TargetId>& left_out) {
    if (left_out.empty()) {
      if (std::exchange(told_alone_, false)) SL_LOG(info, "all stores are synced again");
      alone_since_.reset();
      return;
    }
    const Nanoseconds now = system_clock().boot();
    if (!alone_since_) alone_since_ = now;
    if (now - *alone_since_ < kPatience || std::exchange(told_alone_, true)) return;
    SL_LOG(warn, "metadata is flushed without a store that is away target={}",
           left_out.front().value);
  }

  /// Of all volumes together: what was deleted and still takes space.
  void measure_deleted(metrics::Exposition& out) {
    pb::ListVolumesReply volumes;
    if (!server_.volume_list({}, {}, &volumes).ok()) return;
    std::uint64_t bytes = 0, inodes = 0, held = 0;
    for (const pb::Volume& volume : volumes.volumes()) {
      bytes += volume.trash_bytes();
      inodes += volume.trash_inodes();
      held += volume.held_bytes();
    }
    const auto gauge = [&](const char* name, const char* help, std::uint64_t value) {
      out.gauge(name, help, static_cast<double>(value));
    };
    gauge("starlane_meta_trash_bytes", "Bytes of what is kept in the trash", bytes);
    gauge("starlane_meta_trash_inodes", "Files and directories that are kept in the trash", inodes);
    gauge("starlane_meta_held_bytes", "Bytes that are freed and not yet removed", held);
  }

  static void measure_engine(metrics::Exposition& out, const kv::Meters& meters) {
    const auto seconds = [&](const char* name, const char* help, const metrics::Histogram& of) {
      out.histogram(name, help, of.counted(), metrics::Unit::seconds);
    };
    seconds("starlane_engine_commit_seconds", "Time of commits, those that failed too",
            meters.commit);
    seconds("starlane_engine_write_seconds", "Time of writing a group of commits", meters.write);
    seconds("starlane_engine_flush_seconds", "Time of bringing commits to the device",
            meters.flush);
    out.histogram("starlane_engine_group_commits", "Commits written as one group",
                  meters.group.counted(), metrics::Unit::plain);
    out.counter("starlane_engine_conflicts_total", "Commits that lost a race and are run again",
                meters.conflicts.value());
    out.counter("starlane_engine_failures_total", "Commits that failed otherwise",
                meters.failures.value());
    out.counter("starlane_engine_failed_flushes_total", "Flushes that failed",
                meters.failed_flushes.value());
  }

  void flush_while_running() {
    name_this_thread("meta-flush");
    MutexLock lock(m_);
    while (!stopping_) {
      wake_.wait_for(m_, kFlushInterval);
      if (stopping_) return;
      m_.unlock();
      const Status status = engine_->flush();
      if (!status.ok())
        SL_LOG(error, "metadata cannot be made durable error=\"{}\"", status.to_string());
      m_.lock();
    }
  }

  void stop_flushing() {
    {
      MutexLock lock(m_);
      stopping_ = true;
      wake_.notify_all();
    }
    if (flusher_.joinable()) flusher_.join();
  }

  const std::unique_ptr<kv::Engine> engine_;
  meta::Server server_;
  meta::FlushMarks marks_;
  std::unique_ptr<StoreSyncs> stores_;
  std::optional<Nanoseconds> alone_since_;  // flushes have gone without a store; of the flush
  bool told_alone_ = false;
  MeteredMeta metered_;
  Mutex m_;
  CondVar wake_;
  bool stopping_ SL_GUARDED_BY(m_) = false;
  std::thread flusher_;  // last: it uses all of the above
};

}  // namespace

Result<std::unique_ptr<MetaRole>> MetaRole::start(const Site& site, const MetaOptions& options) {
  kv::RocksdbOptions engine;
  engine.directory = site.metadata().string();
  engine.cache_bytes = options.cache_bytes;
  auto opened = SL_TRY(kv::open_rocksdb(engine));
  meta::Options meta;
  meta.cluster = site.cluster();
  meta.lease = Milliseconds(options.lease_ms);
  meta.heartbeat = Milliseconds(std::max<std::uint32_t>(options.lease_ms / 8, 100));
  return std::unique_ptr<MetaRole>(new MetaRoleImpl(std::move(opened), meta, options.slow));
}

}  // namespace starlane::wire
