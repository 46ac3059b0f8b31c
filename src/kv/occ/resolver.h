// The embedded engines' transactions: judges commits in one order against what the last ones wrote,
// and writes those that pass in groups to a Storage that knows no transactions. Any thread. One
// lock, never held over the storage.
//
// A commit goes: (1) what it needs from its snapshot is read, unlocked; (2) under the lock it is
// judged against all commits accepted before it, takes the next version and joins the queue; (3)
// the first in the queue writes all of it as one batch, publishes one snapshot for the whole group,
// and hands over; (4) a durable one waits for a sync that began after that, shared by all who wait,
// while later groups are written beside it.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/bytes.h"
#include "common/mutex.h"
#include "kv/engine.h"
#include "kv/occ/intent.h"
#include "kv/occ/recent_writes.h"
#include "kv/occ/snapshots.h"
#include "kv/occ/storage.h"
#include "kv/occ/totals.h"

namespace starlane::kv::occ {

struct Options {
  std::string name;  // for describe()
  /// Of row changes kept for judging. A transaction that outlives them (seconds at full load) is a
  /// conflict.
  std::size_t recent_bytes = 64_MiB;
  /// Accumulators kept in memory.
  std::size_t totals = 65'536;
  /// Keys and values of one transaction.
  std::size_t transaction_bytes = 64_MiB;
};

class Resolver final : public Engine {
 public:
  /// Errors: unsupported (a newer format), corrupt, io.
  static Result<std::unique_ptr<Resolver>> open(std::unique_ptr<Storage> storage,
                                                const Options& options);
  /// No transaction may be left.
  ~Resolver() override = default;

  std::unique_ptr<kv::Transaction> begin() override SL_EXCLUDES(m_);
  Status flush() override SL_EXCLUDES(m_);
  void set_before_flush(std::function<Status()> hook) override;
  Description describe() override;
  const Meters* meters() const override { return &meters_; }

  /// For Transaction.
  Status commit(Intent& intent, Durability durability) SL_EXCLUDES(m_);
  const Options& options() const { return options_; }

  /// For tests of crashes: every commit from now on fails with `why`, and those under way have
  /// ended on return.
  void stop(const Status& why) SL_EXCLUDES(m_);

 private:
  struct Waiter {
    explicit Waiter(Intent& wanted) : intent(wanted) {}
    Intent& intent;
    Version at = 0;
    bool leads = false;
    bool done = false;
    Status status;
    CondVar wake;
  };
  struct Group {
    std::vector<Waiter*> waiters;
    std::vector<Totals::Changed> totals;
    Version last = 0;
  };
  /// `because`: the commit to wait for before the caller may usefully try again.
  struct Verdict {
    Status status;
    Version because = 0;
  };
  using Pinned = std::vector<std::pair<Totals::Entry*, Total>>;

  Resolver(std::unique_ptr<Storage> storage, const Options& options, Version base,
           std::shared_ptr<const View> view);

  static Status read_expected(Intent& intent);
  static Status read_touched(Intent& intent);
  static Status read_ranges(Intent& intent);

  Result<Version> order(Intent& intent) SL_EXCLUDES(m_);
  Status load_totals(Pinned& pinned) SL_REQUIRES(m_);
  Verdict judge(const Intent& intent, Pinned& pinned) const SL_REQUIRES(m_);
  Verdict judge_rows(const Intent& intent) const SL_REQUIRES(m_);
  Verdict judge_range(const EmptyRange& range, Version since) const SL_REQUIRES(m_);
  Verdict judge_totals(const Intent& intent, Pinned& pinned) const SL_REQUIRES(m_);
  void accept(Waiter& waiter, const Pinned& pinned) SL_REQUIRES(m_);
  void await_visible(Version at) SL_REQUIRES(m_);

  SnapshotPtr wait_or_lead(Waiter& waiter) SL_REQUIRES(m_);
  Group take_group() SL_REQUIRES(m_);
  Result<std::shared_ptr<const View>> write(const Group& group);
  void publish(const Group& group, SnapshotPtr& snapshot) SL_REQUIRES(m_);
  void fail(const Group& group, const Status& why) SL_REQUIRES(m_);

  Status judge_and_write(Intent& intent, Durability durability) SL_EXCLUDES(m_);
  Status make_durable(Version at) SL_EXCLUDES(m_);
  void run_flush() SL_REQUIRES(m_);

  const std::unique_ptr<Storage> storage_;
  const Options options_;
  Snapshots snapshots_;
  Meters meters_;
  std::function<Status()> before_flush_;  // Set before the first transaction.

  mutable Mutex m_;
  Status stopped_ SL_GUARDED_BY(m_);  // Not ok: the storage failed, or stop().
  Version last_ SL_GUARDED_BY(m_);    // Given to the last accepted commit.
  SnapshotPtr current_
      SL_GUARDED_BY(m_);  // What begin() hands out; its version is what is visible.
  RecentWrites recent_ SL_GUARDED_BY(m_);
  Totals totals_ SL_GUARDED_BY(m_);

  std::vector<Waiter*> queue_ SL_GUARDED_BY(m_);  // Accepted, not written. At most one a thread.
  bool leading_ SL_GUARDED_BY(m_) = false;
  int watchers_ SL_GUARDED_BY(m_) = 0;  // In await_visible and stop.
  CondVar published_;

  Version synced_ SL_GUARDED_BY(m_);
  bool syncing_ SL_GUARDED_BY(m_) = false;
  CondVar flush_ended_;
  // Of the last flush that the hook let fail: how many there were, up to which commit it would have
  // reached.
  std::uint64_t failed_flushes_ SL_GUARDED_BY(m_) = 0;
  Version failed_reach_ SL_GUARDED_BY(m_) = 0;
  Status failed_flush_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::kv::occ
