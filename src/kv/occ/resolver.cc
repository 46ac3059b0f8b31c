#include "kv/occ/resolver.h"

#include <algorithm>

#include "kv/occ/transaction.h"

namespace starlane::kv::occ {
namespace {

/// Versions skipped at each start, so that none is given twice even if power loss took the rows
/// that had it.
constexpr Version kStartGap = Version{1} << 32;
/// More rows than that in a range that should be empty are not looked at one by one.
constexpr std::size_t kRangeRows = 1024;

Status lost(const char* why) { return Status(Errc::conflict, why); }

}  // namespace

Result<std::unique_ptr<Resolver>> Resolver::open(std::unique_ptr<Storage> storage,
                                                 const Options& options) {
  const auto found = SL_TRY(storage->view());
  const auto stored = SL_TRY(found->get(kSequenceKey));
  const Version last = stored ? SL_TRY(decode_sequence(*stored)) : 0;
  if (last > ~Version{0} - kStartGap)
    return Status(Errc::corrupt, "the key-value engine's own row is damaged");
  const Version base = last + kStartGap;
  const std::string sequence = encode_sequence(base);
  SL_TRY(storage->write({{kSequenceKey, sequence}}));
  SL_TRY(storage->sync());
  auto view = SL_TRY(storage->view());
  return std::unique_ptr<Resolver>(
      new Resolver(std::move(storage), options, base, std::move(view)));
}

Resolver::Resolver(std::unique_ptr<Storage> storage, const Options& options, Version base,
                   std::shared_ptr<const View> view)
    : storage_(std::move(storage)),
      options_(options),
      last_(base),
      current_(snapshots_.add(base, std::move(view))),
      recent_(base, options.recent_bytes),
      totals_(options.totals),
      synced_(base) {}

std::unique_ptr<kv::Transaction> Resolver::begin() {
  MutexLock lock(m_);
  return std::make_unique<Transaction>(*this, current_);
}

void Resolver::set_before_flush(std::function<Status()> hook) { before_flush_ = std::move(hook); }

Engine::Description Resolver::describe() { return {options_.name, storage_->bytes_on_device()}; }

// ---- one commit ----

Status Resolver::commit(Intent& intent, Durability durability) {
  if (intent.bytes > options_.transaction_bytes)
    return Status(Errc::too_big, "a transaction of " + std::to_string(intent.bytes) +
                                     " bytes is over the limit of " +
                                     std::to_string(options_.transaction_bytes));
  const metrics::Timed timed(meters_.commit);
  const Status status = judge_and_write(intent, durability);
  if (status.code() == Errc::conflict)
    meters_.conflicts.add();
  else if (!status.ok())
    meters_.failures.add();
  return status;
}

Status Resolver::judge_and_write(Intent& intent, Durability durability) {
  SL_TRY(read_touched(intent));
  SL_TRY(read_expected(intent));
  SL_TRY(read_ranges(intent));
  if (intent.writes()) SL_TRY(storage_->room(intent.frees()));
  const Version at = SL_TRY(order(intent));
  return durability == Durability::durable ? make_durable(at) : Status();
}

/// A touch writes the row as it is, and holds only while it is so.
Status Resolver::read_touched(Intent& intent) {
  std::vector<RowChange> rows;
  for (std::string& key : intent.touches) {
    auto value = SL_TRY(intent.snapshot->view->get(key));
    if (!value) return Status(Errc::not_found, "a row to touch is not there");
    SL_TRY(version_of(*value));
    intent.guards.push_back(key);
    rows.push_back({std::move(key), std::move(*value), false});
  }
  intent.touches.clear();
  // In front: a put or del of the same transaction wins.
  intent.rows.insert(intent.rows.begin(), std::make_move_iterator(rows.begin()),
                     std::make_move_iterator(rows.end()));
  return {};
}

Status Resolver::read_expected(Intent& intent) {
  std::vector<std::string_view> keys;
  std::vector<Expectation*> unknown;
  for (Expectation& expectation : intent.expects) {
    if (expectation.at_begin) continue;
    keys.push_back(expectation.key);
    unknown.push_back(&expectation);
  }
  if (keys.empty()) return {};
  const auto values = SL_TRY(intent.snapshot->view->get_many(keys));
  for (std::size_t i = 0; i < keys.size(); ++i)
    unknown[i]->at_begin = values[i] ? SL_TRY(version_of(*values[i])) : kAbsent;
  return {};
}

Status Resolver::read_ranges(Intent& intent) {
  for (EmptyRange& range : intent.empties) {
    const auto note = [&](std::string_view key, std::string_view) {
      range.rows_at_begin.emplace_back(key);
      return range.rows_at_begin.size() <= kRangeRows;
    };
    SL_TRY(intent.snapshot->view->scan(range.first, range.last, note));
    if (range.rows_at_begin.size() > kRangeRows)
      return lost("a range that should be empty holds many rows");
  }
  return {};
}

/// Gives the commit its place: the version at which it is visible.
Result<Version> Resolver::order(Intent& intent) {
  SnapshotPtr retired;  // Freed after the lock.
  MutexLock lock(m_);
  Pinned pinned;
  for (const TotalChange& change : intent.totals)
    pinned.emplace_back(&totals_.pin(change.key), Total());
  Verdict verdict{load_totals(pinned)};
  if (verdict.status.ok()) verdict = judge(intent, pinned);
  Waiter waiter(intent);
  const bool accepted = verdict.status.ok() && intent.writes();
  if (accepted) accept(waiter, pinned);
  for (auto& [entry, total] : pinned) totals_.unpin(*entry);
  if (!verdict.status.ok()) {
    await_visible(verdict.because);
    return verdict.status;
  }
  if (!accepted) return intent.snapshot->at;
  retired = wait_or_lead(waiter);
  if (!waiter.status.ok()) return waiter.status;
  return waiter.at;
}

/// Reads the pinned accumulators that are not in memory. Unlocks meanwhile: an entry that is not
/// loaded has no change under way, and gets none before it is.
Status Resolver::load_totals(Pinned& pinned) {
  std::vector<std::string_view> keys;
  std::vector<Totals::Entry*> missing;
  for (const auto& [entry, total] : pinned) {
    if (entry->loaded) continue;
    keys.push_back(*entry->key);
    missing.push_back(entry);
  }
  if (keys.empty()) return {};
  SnapshotPtr snapshot = current_;
  m_.unlock();
  const auto values = snapshot->view->get_many(keys);
  snapshot.reset();
  m_.lock();
  if (!values.ok()) return values.status();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (missing[i]->loaded) continue;
    if ((*values)[i]) missing[i]->total = SL_TRY(decode_total(*(*values)[i]));
    missing[i]->loaded = true;
  }
  return {};
}

Resolver::Verdict Resolver::judge(const Intent& intent, Pinned& pinned) const {
  if (!stopped_.ok()) return {stopped_};
  if (intent.asks()) {
    if (intent.snapshot->at < recent_.floor())
      return {lost("the transaction is too old to be judged")};
    if (Verdict verdict = judge_rows(intent); !verdict.status.ok()) return verdict;
  }
  return judge_totals(intent, pinned);
}

Resolver::Verdict Resolver::judge_rows(const Intent& intent) const {
  const Version since = intent.snapshot->at;
  for (const std::string& key : intent.guards)
    if (const auto* write = recent_.find(key); write && write->at > since)
      return {lost("a guarded row was changed"), write->at};
  for (const Expectation& expectation : intent.expects) {
    const auto* write = recent_.find(expectation.key);
    const Version now = !write ? *expectation.at_begin : write->exists ? write->at : kAbsent;
    if (now != expectation.wanted) return {lost("a row is not as expected"), write ? write->at : 0};
  }
  for (const EmptyRange& range : intent.empties)
    if (Verdict verdict = judge_range(range, since); !verdict.status.ok()) return verdict;
  return {};
}

Resolver::Verdict Resolver::judge_range(const EmptyRange& range, Version since) const {
  for (const std::string& key : range.rows_at_begin)
    if (const auto* write = recent_.find(key); !write || write->exists)
      return {lost("a range is not empty"), write ? write->at : 0};
  if (const Version at = recent_.row_in(range.first, range.last, since); at != 0)
    return {lost("a row came into a range that should be empty"), at};
  return {};
}

/// Works out what the accumulators become, into `pinned` (one element a change; the last of an
/// entry counts).
Resolver::Verdict Resolver::judge_totals(const Intent& intent, Pinned& pinned) const {
  for (std::size_t i = 0; i < pinned.size(); ++i) {
    const Totals::Entry* entry = pinned[i].first;
    Total before = entry->total;
    for (std::size_t j = 0; j < i; ++j)
      if (pinned[j].first == entry) before = pinned[j].second;
    const Result<Total> after = changed(before, intent.totals[i]);
    if (!after.ok()) return {after.status(), entry->at};
    pinned[i].second = *after;
  }
  return {};
}

void Resolver::accept(Waiter& waiter, const Pinned& pinned) {
  waiter.at = ++last_;
  for (RowChange& row : waiter.intent.rows) {
    recent_.record(row.key, waiter.at, !row.is_delete);
    if (!row.is_delete) store_little(row.value.data(), waiter.at);
  }
  for (const auto& [entry, total] : pinned) totals_.set(*entry, total, waiter.at);
  queue_.push_back(&waiter);
}

/// A commit that failed because of one which is not visible yet would fail again at once.
void Resolver::await_visible(Version at) {
  ++watchers_;
  while (current_->at < at && stopped_.ok()) published_.wait(m_);
  --watchers_;
}

// ---- groups ----

/// Returns when the waiter's group is written. What it returns must be freed without the lock.
SnapshotPtr Resolver::wait_or_lead(Waiter& waiter) {
  if (!leading_) leading_ = waiter.leads = true;
  while (!waiter.done && !waiter.leads) waiter.wake.wait(m_);
  if (waiter.done) return nullptr;
  const Group group = take_group();
  m_.unlock();
  const auto view = write(group);
  SnapshotPtr snapshot;
  if (view.ok()) snapshot = snapshots_.add(group.last, *view);
  m_.lock();
  if (view.ok())
    publish(group, snapshot);
  else
    fail(group, view.status());
  leading_ = !queue_.empty();
  if (leading_) {
    queue_.front()->leads = true;
    queue_.front()->wake.notify_one();
  }
  if (watchers_ > 0) published_.notify_all();
  return snapshot;
}

Resolver::Group Resolver::take_group() {
  Group group;
  group.waiters.swap(queue_);
  group.totals = totals_.take_group();
  group.last = last_;
  return group;
}

Result<std::shared_ptr<const View>> Resolver::write(const Group& group) {
  std::vector<Change> changes;
  for (const Waiter* waiter : group.waiters)
    for (const RowChange& row : waiter->intent.rows) {
      changes.push_back({row.key, std::nullopt});
      if (!row.is_delete) changes.back().value = row.value;
    }
  std::vector<std::string> values(group.totals.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Totals::Changed& changed = group.totals[i];
    changes.push_back({changed.key, std::nullopt});
    if (changed.total.kind == TotalKind::none) continue;
    values[i] = encode(changed.total);
    changes.back().value = values[i];
  }
  const std::string sequence = encode_sequence(group.last);
  changes.push_back({kSequenceKey, sequence});
  meters_.group.record(group.waiters.size());
  const metrics::Timed timed(meters_.write);
  SL_TRY(storage_->write(changes));
  return storage_->view();
}

/// Makes the group visible; leaves the former snapshot in `snapshot`.
void Resolver::publish(const Group& group, SnapshotPtr& snapshot) {
  current_.swap(snapshot);
  recent_.trim(snapshots_.oldest(group.last), group.last);
  totals_.trim(group.last);
  for (Waiter* waiter : group.waiters) {
    waiter->done = true;
    waiter->wake.notify_one();
  }
}

/// What the disk holds now is unknown, so nothing may be built on it: commits fail until the data
/// is opened anew.
void Resolver::fail(const Group& group, const Status& why) {
  if (stopped_.ok())
    stopped_ = Status(
        Errc::io, "the key-value engine stopped after a failed write, restart it: " + why.text());
  std::vector<Waiter*> failed = group.waiters;
  failed.insert(failed.end(), queue_.begin(), queue_.end());
  for (Waiter* waiter : failed) {
    waiter->done = true;
    waiter->status = stopped_;
    waiter->wake.notify_one();
  }
  queue_.clear();
  flush_ended_.notify_all();
}

void Resolver::stop(const Status& why) {
  MutexLock lock(m_);
  if (stopped_.ok()) stopped_ = why;
  ++watchers_;
  published_.notify_all();
  flush_ended_.notify_all();
  while (leading_) published_.wait(m_);
  --watchers_;
  while (syncing_) flush_ended_.wait(m_);
}

// ---- durability ----

Status Resolver::flush() {
  Version at = 0;
  {
    MutexLock lock(m_);
    at = current_->at;
  }
  return make_durable(at);
}

Status Resolver::make_durable(Version at) {
  MutexLock lock(m_);
  const std::uint64_t failures = failed_flushes_;
  while (synced_ < at) {
    if (!stopped_.ok()) return stopped_;
    if (failed_flushes_ != failures && failed_reach_ >= at) return failed_flush_;
    if (syncing_)
      flush_ended_.wait(m_);
    else
      run_flush();
  }
  return {};
}

/// One flush, for everything visible now. Groups are judged and written meanwhile.
void Resolver::run_flush() {
  syncing_ = true;
  const Version reach = current_->at;
  m_.unlock();
  const Nanoseconds began = system_clock().boot();
  const Status hook = before_flush_ ? before_flush_() : Status();
  const Status sync = hook.ok() ? storage_->sync() : Status();
  meters_.flush.record(system_clock().boot() - began);
  if (!hook.ok() || !sync.ok()) meters_.failed_flushes.add();
  m_.lock();
  syncing_ = false;
  if (!hook.ok()) {
    ++failed_flushes_;
    failed_reach_ = reach;
    failed_flush_ = hook;
  } else if (!sync.ok()) {
    // The kernel may have dropped what it could not write: a second sync would lie.
    if (stopped_.ok())
      stopped_ = Status(
          Errc::io, "the key-value engine stopped after a failed sync, restart it: " + sync.text());
    published_.notify_all();
  } else {
    synced_ = std::max(synced_, reach);
  }
  flush_ended_.notify_all();
}

}  // namespace starlane::kv::occ
