// The conformance suite on the engines of this folder.
#include <cstdlib>
#include <filesystem>

#include "kv/conformance.h"
#include "kv/mem/mem_engine.h"
#include "kv/rocksdb/rocksdb_engine.h"

namespace starlane::kv {
namespace {

class MemSubject final : public Subject {
 public:
  explicit MemSubject(const occ::Options& options) : engine_(options) {}
  Engine& engine() override { return engine_; }
  void restart() override { engine_.crash(false); }
  bool lose_power() override {
    engine_.crash(true);
    return true;
  }
  bool lose_next_answer() override {
    engine_.fail_next(mem::Fault::lost_answer);
    return true;
  }

 private:
  mem::MemEngine engine_;
};

/// All limits so small that they are met all the time.
occ::Options tight() {
  return {.name = "tight", .recent_bytes = 4_KiB, .totals = 4, .transaction_bytes = 64_MiB};
}

std::string new_directory() {
  char name[] = "/dev/shm/starlane-kv-XXXXXX";
  return ::mkdtemp(name);
}
void remove_directory(const std::string& directory) { std::filesystem::remove_all(directory); }

Result<std::unique_ptr<Engine>> open_small(const std::string& directory) {
  return open_rocksdb({.directory = directory + "/kv",
                       .cache_bytes = 4_MiB,
                       .write_buffer_bytes = 1_MiB,
                       .reserve_bytes = 0});
}

class RocksdbSubject final : public Subject {
 public:
  RocksdbSubject() { open(); }
  ~RocksdbSubject() override {
    engine_.reset();
    remove_directory(directory_);
  }
  Engine& engine() override { return *engine_; }
  void restart() override {
    engine_.reset();
    open();
  }

 private:
  void open() {
    auto opened = open_small(directory_);
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    engine_ = std::move(*opened);
  }

  const std::string directory_ = new_directory();
  std::unique_ptr<Engine> engine_;
};

const SubjectKind kMem{"mem",
                       [] { return std::make_unique<MemSubject>(occ::Options{.name = "mem"}); }};
const SubjectKind kTight{"tight", [] { return std::make_unique<MemSubject>(tight()); }};
const SubjectKind kRocksdb{"rocksdb", [] { return std::make_unique<RocksdbSubject>(); }, open_small,
                           new_directory, remove_directory};

INSTANTIATE_TEST_SUITE_P(Kv, EngineConformance, ::testing::Values(kMem, kTight, kRocksdb),
                         name_of_kind);
INSTANTIATE_TEST_SUITE_P(Kv, EngineKill, ::testing::Values(kRocksdb), name_of_kind);

}  // namespace
}  // namespace starlane::kv
