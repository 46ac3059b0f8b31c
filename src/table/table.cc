#include "table/table.h"

#include <fcntl.h>
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "common/errno.h"
#include "common/unique_fd.h"

namespace starlane::table {
namespace {

rocksdb::Slice slice_of(std::string_view text) { return {text.data(), text.size()}; }
std::string_view view_of(const rocksdb::Slice& slice) { return {slice.data(), slice.size()}; }

Errc errc_of_rocksdb(const rocksdb::Status& status) {
  if (status.IsNoSpace()) return Errc::no_space;
  if (status.IsMemoryLimit()) return Errc::no_memory;
  switch (status.code()) {
    case rocksdb::Status::kNotFound:
      return Errc::not_found;
    case rocksdb::Status::kCorruption:
      return Errc::corrupt;
    case rocksdb::Status::kInvalidArgument:
      return Errc::invalid;
    case rocksdb::Status::kNotSupported:
      return Errc::unsupported;
    case rocksdb::Status::kShutdownInProgress:
      return Errc::unavailable;
    default:
      return Errc::io;
  }
}

Status translate(const rocksdb::Status& status, std::string_view what) {
  if (status.ok()) return {};
  return Status(errc_of_rocksdb(status), std::string(what) + ": " + status.ToString());
}

rocksdb::BlockBasedTableOptions block_options(const Options& options) {
  rocksdb::BlockBasedTableOptions blocks;
  blocks.block_cache = rocksdb::NewLRUCache(options.cache_bytes);
  blocks.cache_index_and_filter_blocks = true;  // Else their memory grows with the table.
  blocks.pin_l0_filter_and_index_blocks_in_cache = true;
  blocks.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  blocks.block_size = 16_KiB;
  blocks.format_version = 5;
  return blocks;
}

rocksdb::Options rocksdb_options(const Options& options) {
  rocksdb::Options o;
  o.create_if_missing = options.create;
  o.table_factory.reset(rocksdb::NewBlockBasedTableFactory(block_options(options)));
  o.max_write_buffer_number = 3;  // One filling, two on their way to files.
  o.write_buffer_size = std::max<std::uint64_t>(options.write_buffer_bytes / 3, 64_KiB);
  o.target_file_size_base = std::max<std::uint64_t>(o.write_buffer_size, 16_MiB);
  o.compression = options.compress ? rocksdb::kLZ4Compression : rocksdb::kNoCompression;
  o.level_compaction_dynamic_level_bytes = true;
  o.enable_blob_files = options.large_value_bytes != 0;
  o.min_blob_size = options.large_value_bytes;
  o.enable_blob_garbage_collection = true;
  o.max_background_jobs = std::max(options.background_threads, 2);
  o.max_open_files = options.open_files;
  o.bytes_per_sync = 1_MiB;
  // Unsynced bytes of a log may come back in any order after power loss: what stands before the
  // first gap counts.
  o.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  o.info_log_level = rocksdb::WARN_LEVEL;
  o.keep_log_file_num = 3;
  o.max_log_file_size = 4_MiB;
  o.stats_dump_period_sec = 0;
  o.stats_persist_period_sec = 0;
  return o;
}

/// What RocksDB may have left in a directory whose table never came to be.
bool made_by_rocksdb(const std::string& name) {
  for (const char* prefix : {"LOCK", "LOG", "IDENTITY", "MANIFEST-", "OPTIONS-", "CURRENT"})
    if (name.starts_with(prefix)) return true;
  return name.ends_with(".log") || name.ends_with(".dbtmp") || name.ends_with(".sst");
}

Status check_contents(const Options& options) {
  std::error_code error;
  const std::filesystem::path directory(options.directory);
  if (std::filesystem::exists(directory / "CURRENT", error)) return {};
  if (!options.create) return Status(Errc::not_found, "there is no table in " + options.directory);
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error))
    if (const std::string name = it->path().filename(); !made_by_rocksdb(name))
      return Status(Errc::invalid,
                    options.directory + " is not a table: it holds the foreign file " + name);
  if (error) return system_error("cannot list " + options.directory, error.value());
  return {};
}

/// The directory itself carries the lock, so that the answer does not rest on RocksDB's wording of
/// its own.
Result<UniqueFd> lock_directory(const Options& options) {
  const std::string& directory = options.directory;
  if (directory.empty()) return Status(Errc::invalid, "a table needs a directory");
  if (options.create) {
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    if (error) return system_error("cannot make the directory " + directory, error.value());
  }
  UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd && errno == ENOENT) return Status(Errc::not_found, "there is no table in " + directory);
  if (!fd) return system_error("cannot open the directory " + directory, errno);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK)
      return Status(Errc::busy, directory + " is in use by another process");
    return system_error("cannot lock " + directory, errno);
  }
  return fd;
}

Status open_failed(const Options& options, const rocksdb::Status& status) {
  if (status.IsIOError() && status.ToString().find("While lock file") != std::string::npos)
    return Status(Errc::busy, options.directory + " is in use by another process");
  if (status.IsCorruption() || status.IsNotSupported() || status.IsInvalidArgument())
    return Status(Errc::corrupt,
                  options.directory + " is damaged, or of a newer format: " + status.ToString());
  return translate(status, "cannot open the table in " + options.directory);
}

}  // namespace

struct Table::Impl {
  Options options;
  UniqueFd lock;  // Released after `db`, which is closed first.
  std::unique_ptr<rocksdb::DB> db;

  rocksdb::ReadOptions read_options(const SnapshotPtr& snapshot) const;
};

class Snapshot {
 public:
  explicit Snapshot(std::shared_ptr<Table::Impl> table)
      : table_(std::move(table)), snapshot_(table_->db->GetSnapshot()) {}
  ~Snapshot() { table_->db->ReleaseSnapshot(snapshot_); }
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;
  const rocksdb::Snapshot* get() const { return snapshot_; }

 private:
  const std::shared_ptr<Table::Impl> table_;
  const rocksdb::Snapshot* const snapshot_;
};

rocksdb::ReadOptions Table::Impl::read_options(const SnapshotPtr& snapshot) const {
  rocksdb::ReadOptions read;
  if (snapshot) read.snapshot = snapshot->get();
  return read;
}

struct WriteBatch::Impl {
  rocksdb::WriteBatch batch;
};

WriteBatch::WriteBatch() : impl_(std::make_unique<Impl>()) {}
WriteBatch::~WriteBatch() = default;
WriteBatch::WriteBatch(WriteBatch&&) noexcept = default;
WriteBatch& WriteBatch::operator=(WriteBatch&&) noexcept = default;

// The batch's own calls fail only for keys and values of 4 GiB and more.
void WriteBatch::put(std::string_view key, std::string_view value) {
  SL_CHECK(impl_->batch.Put(slice_of(key), slice_of(value)).ok());
}
void WriteBatch::del(std::string_view key) { SL_CHECK(impl_->batch.Delete(slice_of(key)).ok()); }
void WriteBatch::del_range(std::string_view first, std::string_view last) {
  SL_CHECK(impl_->batch.DeleteRange(slice_of(first), slice_of(last)).ok());
}
void WriteBatch::clear() { impl_->batch.Clear(); }
bool WriteBatch::empty() const { return impl_->batch.Count() == 0; }
std::size_t WriteBatch::bytes() const { return impl_->batch.GetDataSize(); }

struct Iterator::Impl {
  std::shared_ptr<Table::Impl> table;
  SnapshotPtr snapshot;
  std::string first;
  std::string last;
  rocksdb::Slice bound;  // RocksDB keeps its address.
  std::unique_ptr<rocksdb::Iterator> it;
};

Iterator::Iterator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Iterator::~Iterator() = default;
Iterator::Iterator(Iterator&&) noexcept = default;
Iterator& Iterator::operator=(Iterator&&) noexcept = default;
bool Iterator::valid() const { return impl_->it->Valid(); }
void Iterator::next() { impl_->it->Next(); }
void Iterator::seek(std::string_view key) {
  impl_->it->Seek(slice_of(std::max<std::string_view>(key, impl_->first)));
}
std::string_view Iterator::key() const { return view_of(impl_->it->key()); }
std::string_view Iterator::value() const { return view_of(impl_->it->value()); }
Status Iterator::status() const { return translate(impl_->it->status(), "cannot read a range"); }

Table::Table(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Table::~Table() = default;

Result<std::unique_ptr<Table>> Table::open(const Options& options) {
  auto impl = std::make_shared<Impl>();
  impl->options = options;
  impl->lock = SL_TRY(lock_directory(options));
  SL_TRY(check_contents(options));
  rocksdb::DB* db = nullptr;
  const rocksdb::Status status =
      rocksdb::DB::Open(rocksdb_options(options), options.directory, &db);
  impl->db.reset(db);
  if (!status.ok()) return open_failed(options, status);
  return std::unique_ptr<Table>(new Table(std::move(impl)));
}

Result<std::optional<std::string>> Table::get(std::string_view key,
                                              const SnapshotPtr& snapshot) const {
  std::string value;
  const rocksdb::Status status =
      impl_->db->Get(impl_->read_options(snapshot), slice_of(key), &value);
  if (status.IsNotFound()) return std::optional<std::string>();
  SL_TRY(translate(status, "cannot read a row"));
  return std::optional<std::string>(std::move(value));
}

Result<std::vector<std::optional<std::string>>> Table::multi_get(
    const std::vector<std::string_view>& keys, const SnapshotPtr& snapshot) const {
  std::vector<rocksdb::Slice> slices;
  slices.reserve(keys.size());
  for (const auto key : keys) slices.push_back(slice_of(key));
  std::vector<rocksdb::PinnableSlice> values(keys.size());
  std::vector<rocksdb::Status> statuses(keys.size());
  impl_->db->MultiGet(impl_->read_options(snapshot), impl_->db->DefaultColumnFamily(), keys.size(),
                      slices.data(), values.data(), statuses.data());
  std::vector<std::optional<std::string>> out(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (statuses[i].IsNotFound()) continue;
    SL_TRY(translate(statuses[i], "cannot read rows"));
    out[i] = values[i].ToString();
  }
  return out;
}

Iterator Table::iterate(const Range& range, const SnapshotPtr& snapshot) const {
  auto impl = std::make_unique<Iterator::Impl>();
  impl->table = impl_;
  impl->snapshot = snapshot;
  impl->first = range.first;
  impl->last = range.last;
  impl->bound = slice_of(impl->last);
  rocksdb::ReadOptions read = impl_->read_options(snapshot);
  if (!impl->last.empty()) read.iterate_upper_bound = &impl->bound;
  impl->it.reset(impl_->db->NewIterator(read));
  impl->it->Seek(slice_of(impl->first));
  return Iterator(std::move(impl));
}

SnapshotPtr Table::snapshot() const { return std::make_shared<const Snapshot>(impl_); }

Status Table::write(const WriteBatch& batch, const WriteOptions& options) {
  if (options.sync && !impl_->options.log)
    return Status(Errc::invalid, "a table without a log cannot sync a write: flush it");
  rocksdb::WriteOptions write;
  write.sync = options.sync;
  write.disableWAL = !impl_->options.log;
  return translate(impl_->db->Write(write, &batch.impl_->batch), "cannot write to " + directory());
}

Status Table::sync_log() {
  if (!impl_->options.log)
    return Status(Errc::invalid, "a table without a log has none to sync: flush it");
  return translate(impl_->db->SyncWAL(), "cannot sync the log of " + directory());
}

Status Table::flush() {
  return translate(impl_->db->Flush(rocksdb::FlushOptions()), "cannot flush " + directory());
}

Status Table::compact(const Range& range) {
  const rocksdb::Slice first = slice_of(range.first);
  const rocksdb::Slice last = slice_of(range.last);
  return translate(impl_->db->CompactRange(rocksdb::CompactRangeOptions(), &first,
                                           range.last.empty() ? nullptr : &last),
                   "cannot compact " + directory());
}

std::uint64_t Table::approximate_bytes(const Range& range) const {
  // RocksDB wants an end; no key of ours is longer or greater than this.
  static const std::string kEnd(64, '\xff');
  const rocksdb::Range wanted(slice_of(range.first),
                              slice_of(range.last.empty() ? kEnd : range.last));
  std::uint64_t bytes = 0;
  const rocksdb::Status status = impl_->db->GetApproximateSizes(&wanted, 1, &bytes);
  return status.ok() ? bytes : 0;
}

std::uint64_t Table::bytes_on_device() const {
  std::uint64_t sum = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory(), error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;  // Background work removes files meanwhile.
    const std::uint64_t size = it->file_size(gone);
    if (!gone) sum += size;
  }
  return sum;
}

const std::string& Table::directory() const { return impl_->options.directory; }

}  // namespace starlane::table
