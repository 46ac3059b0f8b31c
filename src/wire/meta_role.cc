// Metadata of a site: the engine in its directory, and the namespace over it.
#include <nlohmann/json.hpp>
#include <thread>

#include "common/log.h"
#include "common/mutex.h"
#include "common/thread_pool.h"
#include "kv/rocksdb/rocksdb_engine.h"
#include "meta/server.h"
#include "wire/roles.h"

namespace starlane::wire {
namespace {

/// What was only ordered becomes durable within this: all that `sync` can mean here.
constexpr Nanoseconds kFlushInterval = std::chrono::seconds(1);

class MetaRoleImpl final : public MetaRole {
 public:
  MetaRoleImpl(std::unique_ptr<kv::Engine> engine, const meta::Options& options)
      : engine_(std::move(engine)),
        server_(*engine_, system_clock(), options),
        flusher_([this] { flush_while_running(); }) {}

  ~MetaRoleImpl() override { stop_flushing(); }

  MetaService& service() override { return server_; }

  void sync_before_flush(BlockService& blocks) override {
    engine_->set_before_flush([&blocks]() -> Status {
      const std::vector<TargetInfo> infos = SL_TRY(blocks.targets({}));
      for (const TargetInfo& info : infos) SL_TRY(blocks.sync({}, info.target));
      return {};
    });
  }

  Status stop() override {
    stop_flushing();
    return engine_->flush();
  }

  std::string figures() override {
    const kv::Engine::Description engine = engine_->describe();
    return nlohmann::json{{"engine", engine.name}, {"bytes_on_device", engine.bytes_on_device}}
        .dump();
  }

 private:
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
  return std::unique_ptr<MetaRole>(new MetaRoleImpl(std::move(opened), meta));
}

}  // namespace starlane::wire
