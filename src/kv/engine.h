// The contract of the transactional key-value engine under all metadata: what a transaction may
// rely on, the same on every engine (kv/conformance.h is its proof). Keys are ordered as unsigned
// bytes.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "kv/meters.h"

namespace starlane::kv {

/// Opaque: equal iff the row was not changed (or touched) between two reads. kAbsent for a row that
/// is not there.
using Version = std::uint64_t;
inline constexpr Version kAbsent = 0;

struct Row {
  std::string key;
  std::string value;
  Version version = kAbsent;
};

struct ScanOptions {
  std::string first;  // included
  std::string last;   // excluded; empty: to the end of the key space
  std::size_t limit = 1000;
};

/// ordered: survives the death of any process. durable: survives power loss too.
enum class Durability : std::uint8_t { ordered, durable };

/// One attempt at a change. Reads see one snapshot, taken at begin(), without this transaction's
/// own writes, and *protect nothing*: say what the outcome depends on with expect, guard or
/// expect_empty. One thread at a time.
class Transaction {
 public:
  virtual ~Transaction() = default;

  /// Errors: conflict (the snapshot is too old; run again), io, unavailable.
  virtual Result<std::optional<Row>> get(std::string_view key) = 0;
  /// In the order of `keys`.
  virtual Result<std::vector<std::optional<Row>>> get_many(
      const std::vector<std::string>& keys) = 0;
  /// Rows in key order. Not for ranges that hold accumulators.
  virtual Result<std::vector<Row>> scan(const ScanOptions& options) = 0;
  /// An accumulator's value (of add: the sum; of max: the greatest), 0 where there is none.
  virtual Result<std::int64_t> total(std::string_view key) = 0;
  virtual Result<std::vector<std::int64_t>> totals(const std::vector<std::string>& keys) = 0;

  /// The commit fails unless the row's version is still `version`; kAbsent: unless it is absent.
  virtual void expect(std::string_view key, Version version) = 0;
  /// The commit fails if anyone changed or touched the row after this transaction began. Writes
  /// nothing; any number of transactions may guard one key and commit side by side.
  virtual void guard(std::string_view key) = 0;
  /// The commit fails if any row lies in [first, last) at the moment of commit, before this
  /// transaction's own writes (accumulators are no rows; `last` empty: to the end of the key
  /// space).
  virtual void expect_empty(std::string_view first, std::string_view last) = 0;

  virtual void put(std::string_view key, std::string_view value) = 0;
  virtual void del(std::string_view key) = 0;
  /// Raises the row's version (breaks every guard and expect on it) without changing its value. The
  /// row must be there, else the commit answers not_found; it may also conflict as a guard does.
  virtual void touch(std::string_view key) = 0;

  /// Accumulators: never conflict. The key may be used with one of the two only, and never with put
  /// or expect.
  virtual void add(std::string_view key, std::int64_t amount) = 0;
  /// As add, but the commit fails with `quota` if the sum would exceed `limit` (a negative amount
  /// never fails).
  virtual void add_limited(std::string_view key, std::int64_t amount, std::int64_t limit) = 0;
  virtual void max(std::string_view key, std::int64_t value) = 0;
  /// Removes an accumulator.
  virtual void clear(std::string_view key) = 0;

  /// All or nothing, in one order for everyone; visible to every transaction begun after it
  /// returned. Errors: conflict (nothing happened; run again from begin), quota, no_space, io and
  /// unavailable (it may or may not have happened); too_big, and not_found, range or invalid for a
  /// touch or an accumulator that cannot be: nothing happened. At most once. With durable,
  /// everything this transaction read is durable too, even if it wrote nothing.
  virtual Status commit(Durability durability) = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual std::unique_ptr<Transaction> begin() = 0;
  /// Makes every commit that has returned durable. Concurrent callers share one flush.
  virtual Status flush() = 0;
  /// Called before each flush reaches the device: brings what ordered commits name (blocks) to the
  /// device first. Set once, before the first transaction; a failure fails the flush.
  virtual void set_before_flush(std::function<Status()> hook) = 0;
  /// Name and figures for `starlane status`: "rocksdb", rows, bytes on the device.
  struct Description {
    std::string name;
    std::uint64_t bytes_on_device = 0;
  };
  virtual Description describe() = 0;
  /// Null: it counts nothing.
  virtual const Meters* meters() const { return nullptr; }
};

/// Runs `body` in fresh transactions until it commits or fails with anything but conflict: random
/// back-off, at most `attempts`, then the conflict. `body` reads, writes and returns ok to commit;
/// it must have no effect of its own.
Status run(Engine& engine, Durability durability, const std::function<Status(Transaction&)>& body,
           int attempts = 64);

}  // namespace starlane::kv
