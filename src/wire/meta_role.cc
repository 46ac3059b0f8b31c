// Metadata of a site: the engine in its directory, and the namespace over it.
#include <nlohmann/json.hpp>

#include "common/log.h"
#include "kv/rocksdb/rocksdb_engine.h"
#include "meta/server.h"
#include "wire/roles.h"

namespace starlane::wire {
namespace {

class MetaRoleImpl final : public MetaRole {
 public:
  MetaRoleImpl(std::unique_ptr<kv::Engine> engine, const meta::Options& options)
      : engine_(std::move(engine)), server_(*engine_, system_clock(), options) {}

  MetaService& service() override { return server_; }

  void sync_before_flush(BlockService& blocks) override {
    engine_->set_before_flush([&blocks]() -> Status {
      for (const TargetInfo& info : SL_TRY(blocks.targets({}))) {
        const Status synced = blocks.sync({}, info.target);
        if (!synced.ok()) return synced;
      }
      return {};
    });
  }

  Status stop() override { return engine_->flush(); }

  std::string figures() override {
    const kv::Engine::Description engine = engine_->describe();
    return nlohmann::json{{"engine", engine.name}, {"bytes_on_device", engine.bytes_on_device}}
        .dump();
  }

 private:
  const std::unique_ptr<kv::Engine> engine_;
  meta::Server server_;
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
