#include "kv/rocksdb/rocksdb_engine.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <filesystem>

#include "common/clock.h"
#include "common/errno.h"
#include "table/table.h"

namespace starlane::kv {
namespace {

struct Space {
  std::uint64_t size = 0;
  std::uint64_t free = 0;
};

Result<Space> space_of(const std::string& directory) {
  struct statvfs found = {};
  if (::statvfs(directory.c_str(), &found) != 0)
    return system_error("cannot ask for the free space of " + directory, errno);
  return Space{found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize};
}

std::uint64_t reserve_of(const Space& space, std::uint64_t wanted) {
  return std::min(wanted, space.size / 20);
}

class TableView final : public occ::View {
 public:
  TableView(const table::Table& table, table::SnapshotPtr snapshot)
      : table_(table), snapshot_(std::move(snapshot)) {}

  Result<std::optional<std::string>> get(std::string_view key) const override {
    return table_.get(key, snapshot_);
  }
  Result<std::vector<std::optional<std::string>>> get_many(
      const std::vector<std::string_view>& keys) const override {
    return table_.multi_get(keys, snapshot_);
  }
  Status scan(std::string_view first, std::string_view last,
              const std::function<bool(std::string_view, std::string_view)>& visit) const override {
    table::Iterator it = table_.iterate({std::string(first), std::string(last)}, snapshot_);
    while (it.valid() && visit(it.key(), it.value())) it.next();
    return it.status();
  }

 private:
  const table::Table& table_;
  const table::SnapshotPtr snapshot_;
};

class TableStorage final : public occ::Storage {
 public:
  TableStorage(std::unique_ptr<table::Table> table, std::uint64_t reserve_bytes)
      : table_(std::move(table)), reserve_bytes_(reserve_bytes) {}

  Result<std::shared_ptr<const occ::View>> view() override {
    return std::shared_ptr<const occ::View>(
        std::make_shared<TableView>(*table_, table_->snapshot()));
  }
  Status write(const std::vector<occ::Change>& changes) override {
    batch_.clear();
    for (const occ::Change& change : changes) {
      if (change.value)
        batch_.put(change.key, *change.value);
      else
        batch_.del(change.key);
    }
    return table_->write(batch_);
  }
  Status sync() override { return table_->sync_log(); }
  Status room(bool frees) override;
  std::uint64_t bytes_on_device() const override { return table_->bytes_on_device(); }

 private:
  Status measure();

  const std::unique_ptr<table::Table> table_;
  const std::uint64_t reserve_bytes_;
  table::WriteBatch batch_;  // write() is called by one at a time.
  // Of the file system, measured now and then; each stands alone.
  std::atomic<std::int64_t> measured_at_{-1};
  std::atomic<std::uint64_t> free_bytes_{0};
  std::atomic<std::uint64_t> wanted_bytes_{0};
};

Status TableStorage::measure() {
  constexpr std::int64_t kEvery = std::chrono::nanoseconds(std::chrono::milliseconds(50)).count();
  const std::int64_t now = system_clock().boot().count();
  std::int64_t last = measured_at_.load();  // Whoever moves it measures.
  if (last >= 0 && now - last < kEvery) return {};
  if (!measured_at_.compare_exchange_strong(last, now) && last >= 0) return {};
  const Space space = SL_TRY(space_of(table_->directory()));
  free_bytes_ = space.free;
  wanted_bytes_ = reserve_of(space, reserve_bytes_);
  return {};
}

Status TableStorage::room(bool frees) {
  if (reserve_bytes_ == 0) return {};
  SL_TRY(measure());
  const std::uint64_t wanted = frees ? wanted_bytes_ / 8 : wanted_bytes_.load();
  if (free_bytes_ >= wanted) return {};
  return Status(Errc::no_space, "the disk with the metadata, " + table_->directory() + ", is full");
}

/// Rows in memory must find room on the device even when commits are refused.
Status fit_write_buffer(const RocksdbOptions& options, table::Options& table_options) {
  if (options.reserve_bytes == 0) return {};
  std::error_code error;
  std::filesystem::create_directories(options.directory, error);
  if (error) return system_error("cannot make the directory " + options.directory, error.value());
  const Space space = SL_TRY(space_of(options.directory));
  table_options.write_buffer_bytes =
      std::min(table_options.write_buffer_bytes, reserve_of(space, options.reserve_bytes) / 2);
  return {};
}

}  // namespace

Result<std::unique_ptr<Engine>> open_rocksdb(const RocksdbOptions& options) {
  table::Options table_options;
  table_options.directory = options.directory;
  table_options.cache_bytes = options.cache_bytes;
  table_options.write_buffer_bytes = options.write_buffer_bytes;
  SL_TRY(fit_write_buffer(options, table_options));
  auto table = SL_TRY(table::Table::open(table_options));
  auto storage = std::make_unique<TableStorage>(std::move(table), options.reserve_bytes);
  auto resolver = SL_TRY(occ::Resolver::open(std::move(storage), options.resolver));
  return std::unique_ptr<Engine>(std::move(resolver));
}

}  // namespace starlane::kv
