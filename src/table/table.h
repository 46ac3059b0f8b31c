// An ordered table of byte strings in a directory of this machine: the only door to RocksDB, whose
// types, codes and exceptions stop here. Under the embedded key-value engine and the block store's
// index. Any thread may call at once, except that a WriteBatch and an Iterator belong to one
// thread.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/bytes.h"
#include "common/status.h"

namespace starlane::table {

struct Options {
  std::string directory;
  /// Make the table (and its directory) where there is none; otherwise not_found.
  bool create = true;
  /// Keep a write-ahead log. With it every write that returned is in the kernel's hands: it
  /// survives kill -9, and power loss after sync_log(). Without it a write is persistent after
  /// flush() or whenever a buffer filled up; what survives is always *a prefix of the batches, in
  /// the order of write()*, so a row with a sequence number in every batch tells after a crash how
  /// far it came.
  bool log = true;
  /// Blocks, indexes and filters of files read.
  std::uint64_t cache_bytes = 64_MiB;
  /// Rows that are not in sorted files yet; writers wait when it is full.
  std::uint64_t write_buffer_bytes = 48_MiB;
  bool compress = false;
  /// Values from this size on go to files of their own, so that merging does not rewrite them. 0:
  /// never.
  std::uint64_t large_value_bytes = 0;
  int background_threads = 2;
  int open_files = 512;
};

/// The table as it was when the snapshot was taken. Keeps the table open while it lives.
class Snapshot;
using SnapshotPtr = std::shared_ptr<const Snapshot>;

/// Changes that are written together or not at all, in the order of the calls (the last one on a
/// key wins).
class WriteBatch {
 public:
  WriteBatch();
  ~WriteBatch();
  WriteBatch(WriteBatch&&) noexcept;
  WriteBatch& operator=(WriteBatch&&) noexcept;

  void put(std::string_view key, std::string_view value);
  void del(std::string_view key);
  /// Every row in [first, last). For now and then: each one costs every later reader a little until
  /// it is merged away.
  void del_range(std::string_view first, std::string_view last);
  void clear();
  bool empty() const;
  std::size_t bytes() const;

 private:
  friend class Table;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct WriteOptions {
  /// On the device before write() returns. Not without a log.
  bool sync = false;
};

/// [first, last); an empty `last` is the end of the table.
struct Range {
  std::string first;
  std::string last;
};

/// Walks a range upwards, in the table as it was when the iterator was made. Keeps the table open
/// while it lives.
class Iterator {
 public:
  ~Iterator();
  Iterator(Iterator&&) noexcept;
  Iterator& operator=(Iterator&&) noexcept;

  /// False at the end, and after a failure: then ask status().
  bool valid() const;
  void next();
  /// To the first row at or after `key`.
  void seek(std::string_view key);
  /// Until the next call of next() or seek().
  std::string_view key() const;
  std::string_view value() const;
  Status status() const;

 private:
  friend class Table;
  struct Impl;
  explicit Iterator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class Table {
 public:
  /// Errors, each one sentence: busy (another process, or this one, has it open), not_found,
  /// invalid (the directory holds something else), corrupt, io, no_space, access. Blocks while a
  /// log is replayed.
  static Result<std::unique_ptr<Table>> open(const Options& options);
  /// Ends background work. What was written without a log is flushed first.
  ~Table();
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  /// All reads: of `snapshot`, or of what is newest where it is null. Errors: io, corrupt.
  Result<std::optional<std::string>> get(std::string_view key,
                                         const SnapshotPtr& snapshot = nullptr) const;
  /// In the order of `keys`; cheaper than one by one.
  Result<std::vector<std::optional<std::string>>> multi_get(
      const std::vector<std::string_view>& keys, const SnapshotPtr& snapshot = nullptr) const;
  /// Stands on the first row of the range.
  Iterator iterate(const Range& range, const SnapshotPtr& snapshot = nullptr) const;
  SnapshotPtr snapshot() const;

  /// Errors: no_space, io; after one it may be unknown whether the batch is there, and further
  /// writes may fail until the table is opened anew.
  Status write(const WriteBatch& batch, const WriteOptions& options = {});
  /// Every write that returned is on the device when this returns. Writers and readers go on
  /// meanwhile.
  Status sync_log();
  /// Every write that returned is in sorted files, on the device, when this returns. Writers go on
  /// meanwhile.
  Status flush();
  /// Merges a range into its final shape: gives back what was deleted. Long.
  Status compact(const Range& range);

  /// About how many bytes of files the range takes; rows still in memory do not count.
  std::uint64_t approximate_bytes(const Range& range) const;
  /// Size of the table's files, logs included.
  std::uint64_t bytes_on_device() const;
  const std::string& directory() const;

  struct Impl;  // opaque

 private:
  explicit Table(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace starlane::table
