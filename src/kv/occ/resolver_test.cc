// What the conformance suite cannot stage: groups held open, syncs held open, a storage that fails,
// small limits.
#include "kv/occ/resolver.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "kv/mem/mem_engine.h"

namespace starlane::kv::occ {
namespace {

constexpr auto kOrdered = Durability::ordered;
constexpr auto kDurable = Durability::durable;

/// Lets calls through while it is open; tells how many wait.
class Gate {
 public:
  void pass() {
    MutexLock lock(m_);
    ++waiting_;
    changed_.notify_all();
    while (!open_) changed_.wait(m_);
    --waiting_;
  }
  void set(bool open) {
    MutexLock lock(m_);
    open_ = open;
    changed_.notify_all();
  }
  void await(int count) {
    MutexLock lock(m_);
    while (waiting_ < count) changed_.wait(m_);
  }

 private:
  Mutex m_;
  CondVar changed_;
  bool open_ SL_GUARDED_BY(m_) = true;
  int waiting_ SL_GUARDED_BY(m_) = 0;
};

struct Gates {
  Gate write;
  Gate sync;
  Gate read_many;
  std::atomic<int> writes{0};
};

class GatedView final : public View {
 public:
  GatedView(std::shared_ptr<const View> inner, Gates& gates)
      : inner_(std::move(inner)), gates_(gates) {}
  Result<std::optional<std::string>> get(std::string_view key) const override {
    return inner_->get(key);
  }
  Result<std::vector<std::optional<std::string>>> get_many(
      const std::vector<std::string_view>& keys) const override {
    gates_.read_many.pass();
    return inner_->get_many(keys);
  }
  Status scan(std::string_view first, std::string_view last,
              const std::function<bool(std::string_view, std::string_view)>& visit) const override {
    return inner_->scan(first, last, visit);
  }

 private:
  const std::shared_ptr<const View> inner_;
  Gates& gates_;
};

class GatedStorage final : public Storage {
 public:
  GatedStorage(std::unique_ptr<Storage> inner, Gates& gates)
      : inner_(std::move(inner)), gates_(gates) {}
  Result<std::shared_ptr<const View>> view() override {
    auto inner = SL_TRY(inner_->view());
    return std::shared_ptr<const View>(std::make_shared<GatedView>(std::move(inner), gates_));
  }
  Status write(const std::vector<Change>& changes) override {
    gates_.write.pass();
    ++gates_.writes;
    return inner_->write(changes);
  }
  Status sync() override {
    gates_.sync.pass();
    return inner_->sync();
  }
  Status room(bool frees) override { return inner_->room(frees); }
  std::uint64_t bytes_on_device() const override { return inner_->bytes_on_device(); }

 private:
  const std::unique_ptr<Storage> inner_;
  Gates& gates_;
};

class ResolverTest : public ::testing::Test {
 protected:
  ResolverTest() { open({.name = "test"}); }
  void open(const Options& options) {
    resolver_.reset();
    auto opened = Resolver::open(std::make_unique<GatedStorage>(disk_->open(), gates_), options);
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    resolver_ = std::move(*opened);
  }
  Status put(const std::string& key, const std::string& value, Durability durability = kOrdered) {
    const auto t = resolver_->begin();
    t->put(key, value);
    return t->commit(durability);
  }
  bool has(const std::string& key) {
    const auto row = resolver_->begin()->get(key);
    EXPECT_TRUE(row.ok());
    return row.ok() && row->has_value();
  }
  /// A put that is on its way to the storage and held there.
  std::thread held_put(const std::string& key) {
    gates_.write.set(false);
    std::thread thread([this, key] { EXPECT_TRUE(put(key, "held").ok()); });
    gates_.write.await(1);
    return thread;
  }

  const std::shared_ptr<mem::Disk> disk_ = std::make_shared<mem::Disk>();
  Gates gates_;
  std::unique_ptr<Resolver> resolver_;
};

TEST_F(ResolverTest, APhantomOfAGroupThatIsNotWrittenYetIsSeen) {
  std::thread create = held_put("D/dir/new");
  Status outcome;
  std::atomic<bool> answered{false};
  std::thread rmdir([&] {
    const auto t = resolver_->begin();
    t->expect_empty("D/dir/", "D/dir0");
    t->put("gone", "1");
    outcome = t->commit(kOrdered);
    answered = true;
    EXPECT_TRUE(has("D/dir/new"));  // The loser is told when the winner is visible.
  });
  std::thread guarded([&] {
    const auto t = resolver_->begin();
    t->expect("D/dir/new", kAbsent);
    EXPECT_EQ(t->commit(kOrdered).code(), Errc::conflict);
  });
  EXPECT_FALSE(has("D/dir/new"));  // Not visible before it is written.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(answered);
  gates_.write.set(true);
  create.join();
  rmdir.join();
  guarded.join();
  EXPECT_EQ(outcome.code(), Errc::conflict);
  EXPECT_FALSE(has("gone"));
}

TEST_F(ResolverTest, CommitsThatWaitAreWrittenAsOneGroup) {
  constexpr int kWaiting = 10;
  int writes = 0, rounds = 0;
  do {  // When the threads reach the queue is not ours to say, but it will not be late every time.
    std::thread first = held_put("first");
    writes = -gates_.writes;
    std::atomic<int> started{0};
    std::vector<std::thread> others;
    for (int i = 0; i < kWaiting; ++i)
      others.emplace_back([&, i] {
        const auto t = resolver_->begin();
        t->put("k" + std::to_string(i), "v");
        t->add("n", 1);
        ++started;
        EXPECT_TRUE(t->commit(kOrdered).ok());
      });
    while (started < kWaiting) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(rounds));
    gates_.write.set(true);
    first.join();
    for (std::thread& thread : others) thread.join();
    writes += gates_.writes;
    EXPECT_EQ(resolver_->begin()->total("n").value(), kWaiting * (rounds + 1));
  } while (writes > 2 && ++rounds < 100);
  EXPECT_EQ(writes, 2);  // The one that was held, and all the others.
  const Meters& meters = *resolver_->meters();
  EXPECT_EQ(meters.commit.counted().count(), (kWaiting + 1) * (rounds + 1));
  EXPECT_EQ(meters.group.counted().sum, meters.commit.counted().count());
  EXPECT_GE(meters.group.counted().quantile(1), kWaiting);
  EXPECT_EQ(meters.write.counted().count(), meters.group.counted().count());
}

TEST_F(ResolverTest, WhatLosesARaceIsCountedAsAConflict) {
  const auto first = resolver_->begin(), second = resolver_->begin();
  for (const auto& t : {first.get(), second.get()}) {
    t->expect("k", kAbsent);
    t->put("k", "v");
  }
  EXPECT_TRUE(first->commit(kDurable).ok());
  EXPECT_EQ(second->commit(kOrdered).code(), Errc::conflict);
  const Meters& meters = *resolver_->meters();
  EXPECT_EQ(meters.commit.counted().count(), 2U);
  EXPECT_EQ(meters.conflicts.value(), 1U);
  EXPECT_EQ(meters.failures.value(), 0U);
  EXPECT_EQ(meters.flush.counted().count(), 1U);
}

TEST_F(ResolverTest, ASyncHoldsUpNeitherReadersNorOrderedCommits) {
  gates_.sync.set(false);
  std::atomic<bool> returned{false};
  std::thread durable([&] {
    EXPECT_TRUE(put("durable", "1", kDurable).ok());
    returned = true;
  });
  gates_.sync.await(1);
  EXPECT_TRUE(has("durable"));
  EXPECT_TRUE(put("ordered", "1").ok());
  EXPECT_TRUE(has("ordered"));
  EXPECT_FALSE(returned);
  gates_.sync.set(true);
  durable.join();
}

TEST_F(ResolverTest, ACommitDuringASyncNeedsALaterOne) {
  gates_.sync.set(false);
  std::thread first([&] { EXPECT_TRUE(put("a", "1", kDurable).ok()); });
  gates_.sync.await(1);
  const int before = disk_->syncs();
  std::thread second([&] { EXPECT_TRUE(put("b", "1", kDurable).ok()); });
  while (!has("b")) std::this_thread::yield();
  gates_.sync.set(true);
  first.join();
  second.join();
  EXPECT_EQ(disk_->syncs(), before + 2);
  EXPECT_EQ(disk_->unsynced(), 0u);
}

TEST_F(ResolverTest, AFlushDoesNotCoverAGroupThatIsStillBeingWritten) {
  EXPECT_TRUE(put("before", "1").ok());
  gates_.write.set(false);
  std::thread durable([&] { EXPECT_TRUE(put("durable", "1", kDurable).ok()); });
  gates_.write.await(1);
  EXPECT_TRUE(resolver_->flush().ok());
  gates_.write.set(true);
  durable.join();
  EXPECT_EQ(disk_->unsynced(), 0u);
}

TEST_F(ResolverTest, TwoWhoLoadOneAccumulatorBothCount) {
  auto t = resolver_->begin();
  t->add("n", 5);
  EXPECT_TRUE(t->commit(kOrdered).ok());
  t.reset();
  open({.name = "again"});
  gates_.read_many.set(false);
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      const auto one = resolver_->begin();
      one->add("n", 1);
      EXPECT_TRUE(one->commit(kOrdered).ok());
    });
  gates_.read_many.await(2);
  gates_.read_many.set(true);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(resolver_->begin()->total("n").value(), 7);
}

TEST_F(ResolverTest, AReadOnlyDurableCommitMakesWhatItReadDurable) {
  EXPECT_TRUE(put("a", "1").ok());
  EXPECT_EQ(disk_->unsynced(), 1u);
  const auto t = resolver_->begin();
  EXPECT_TRUE(t->get("a").value());
  EXPECT_TRUE(t->commit(kDurable).ok());
  EXPECT_EQ(disk_->unsynced(), 0u);
  const int syncs = disk_->syncs();
  EXPECT_TRUE(resolver_->flush().ok());  // Nothing new.
  EXPECT_EQ(disk_->syncs(), syncs);
}

TEST_F(ResolverTest, AFailedWriteStopsCommitsButNotReads) {
  EXPECT_TRUE(put("before", "1").ok());
  const auto counted = resolver_->begin();
  counted->add("n", 5);
  EXPECT_TRUE(counted->commit(kOrdered).ok());
  disk_->fail_writes(1, Status(Errc::no_space, "the disk is full"));
  const auto t = resolver_->begin();
  t->put("failed", "1");
  t->add("n", 1);
  const Status status = t->commit(kOrdered);
  EXPECT_EQ(status.code(), Errc::io);
  EXPECT_NE(status.text().find("the disk is full"), std::string::npos);
  EXPECT_EQ(put("after", "1").code(), Errc::io);
  EXPECT_EQ(put("after", "1", kDurable).code(), Errc::io);
  EXPECT_TRUE(has("before"));
  EXPECT_FALSE(has("failed"));
  open({.name = "again"});
  EXPECT_FALSE(has("failed"));
  EXPECT_EQ(resolver_->begin()->total("n").value(), 5);
  EXPECT_TRUE(put("after", "1").ok());
}

TEST_F(ResolverTest, AFailedWriteFailsAllWhoWait) {
  gates_.write.set(false);
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  disk_->fail_writes(1, Status(Errc::io, "gone"));
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      const Status status = put("k" + std::to_string(i), "v", i % 2 == 0 ? kOrdered : kDurable);
      if (status.code() == Errc::io) ++failed;
    });
  gates_.write.await(1);
  gates_.write.set(true);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 8);
}

TEST_F(ResolverTest, AFailedSyncStopsCommits) {
  disk_->fail_syncs(1, Status(Errc::io, "cable out"));
  EXPECT_EQ(put("a", "1", kDurable).code(), Errc::io);
  EXPECT_EQ(resolver_->flush().code(), Errc::io);
  EXPECT_EQ(put("b", "1").code(), Errc::io);
  EXPECT_TRUE(has("a"));
}

TEST_F(ResolverTest, AFullDiskRefusesGrowthAndLetsDeletesThrough) {
  EXPECT_TRUE(put("a", "1").ok());
  disk_->set_room(Status(Errc::no_space, "the disk is full"));
  EXPECT_EQ(put("b", "1").code(), Errc::no_space);
  const auto t = resolver_->begin();
  t->del("a");
  t->put("dead", "a");
  EXPECT_TRUE(t->commit(kOrdered).ok());
  const auto read = resolver_->begin();
  read->guard("a");
  EXPECT_TRUE(read->commit(kOrdered).ok());
  disk_->set_room({});
  EXPECT_TRUE(put("b", "1").ok());
}

TEST_F(ResolverTest, ATransactionBelowTheFloorIsAConflictUnlessItAsksNothing) {
  open({.name = "small", .recent_bytes = 2000});
  const auto asks = resolver_->begin();
  const auto blind = resolver_->begin();
  asks->guard("quiet");
  asks->put("a", "1");
  blind->put("b", "1");
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(put("k" + std::to_string(i), "v").ok());
  EXPECT_EQ(asks->commit(kOrdered).code(), Errc::conflict);
  EXPECT_TRUE(blind->commit(kOrdered).ok());
}

TEST_F(ResolverTest, TooLargeATransactionIsRefused) {
  open({.name = "small", .transaction_bytes = 1000});
  EXPECT_EQ(put("a", std::string(1000, 'x')).code(), Errc::too_big);
  EXPECT_TRUE(put("a", std::string(999, 'x')).ok());
}

TEST_F(ResolverTest, AccumulatorsOfTwoKindsDoNotMix) {
  const auto sum = resolver_->begin();
  sum->add("n", 1);
  EXPECT_TRUE(sum->commit(kOrdered).ok());
  const auto greatest = resolver_->begin();
  greatest->max("n", 1);
  EXPECT_EQ(greatest->commit(kOrdered).code(), Errc::invalid);
  const auto full = resolver_->begin();
  full->add("n", INT64_MAX);
  EXPECT_EQ(full->commit(kOrdered).code(), Errc::range);
  EXPECT_EQ(resolver_->begin()->total("n").value(), 1);
}

TEST_F(ResolverTest, WhatIsStoredHasTheseBytes) {
  using namespace std::string_literals;
  const auto t = resolver_->begin();
  t->put("k", "value");
  t->add("a", -2);
  t->max("b", 3);
  EXPECT_TRUE(t->commit(kOrdered).ok());
  const auto view = disk_->open()->view().value();
  // The first start gives out versions from 2^32.
  EXPECT_EQ(view->get("rk").value(), "\x01\0\0\0\x01\0\0\0value"s);
  EXPECT_EQ(view->get("ta").value(), "\x01\xfe\xff\xff\xff\xff\xff\xff\xff"s);
  EXPECT_EQ(view->get("tb").value(), "\x02\x03\0\0\0\0\0\0\0"s);
  EXPECT_EQ(view->get("esequence").value(), "\x01\0\0\0\x01\0\0\0\x01\0\0\0"s);
}

TEST_F(ResolverTest, ANewerFormatAndDamageAreRefused) {
  resolver_.reset();
  const auto open_with = [&](std::string_view sequence) {
    EXPECT_TRUE(disk_->open()->write({{kSequenceKey, sequence}}).ok());
    return Resolver::open(disk_->open(), {.name = "test"}).code();
  };
  EXPECT_EQ(open_with(std::string("\x02\0\0\0 and more", 13)), Errc::unsupported);
  EXPECT_EQ(open_with("\x01"), Errc::corrupt);
  EXPECT_EQ(open_with(std::string("\x01\0\0\0short", 9)), Errc::corrupt);
}

TEST_F(ResolverTest, DamagedRowsAreErrorsAndNotGuesses) {
  ASSERT_TRUE(disk_->open()->write({{"rbad", "short"}, {"tbad", "\x07too long..."}}).ok());
  open({.name = "test"});
  const auto t = resolver_->begin();
  EXPECT_EQ(t->get("bad").code(), Errc::corrupt);
  EXPECT_EQ(t->scan({}).code(), Errc::corrupt);
  EXPECT_EQ(t->total("bad").code(), Errc::corrupt);
  t->add("bad", 1);
  EXPECT_EQ(t->commit(kOrdered).code(), Errc::corrupt);
  const auto expects = resolver_->begin();
  expects->expect("bad", 7);
  EXPECT_EQ(expects->commit(kOrdered).code(), Errc::corrupt);
  const auto touches = resolver_->begin();
  touches->touch("bad");
  EXPECT_EQ(touches->commit(kOrdered).code(), Errc::corrupt);
}

TEST(RecentWrites, ForgetsWhatNobodyCanAskForAndThenWhatIsTooMuch) {
  RecentWrites recent(10, 1000);
  recent.record("a", 11, true);
  recent.record("b", 12, true);
  recent.record("a", 13, false);
  recent.trim(11, 13);
  ASSERT_NE(recent.find("a"), nullptr);
  EXPECT_EQ(recent.find("a")->at, 13u);
  EXPECT_EQ(recent.floor(), 11u);
  recent.trim(12, 13);
  EXPECT_EQ(recent.find("b"), nullptr);
  for (Version at = 14; at < 100; ++at) recent.record("key" + std::to_string(at), at, true);
  recent.trim(12, 50);  // What is not visible yet stays, whatever the limit.
  EXPECT_EQ(recent.floor(), 50u);
  EXPECT_NE(recent.find("key51"), nullptr);
  recent.trim(12, 99);
  EXPECT_LE(recent.bytes(), 1000u);
  EXPECT_EQ(recent.row_in("key", "kez", 98), 99u);
  EXPECT_EQ(recent.row_in("key", "key99", 98), 0u);
}

TEST(Totals, StaysNearItsLimitAndKeepsWhatIsInUse) {
  Totals totals(10);
  Totals::Entry& held = totals.pin("held");
  Totals::Entry& pending = totals.pin("pending");
  totals.set(pending, {TotalKind::sum, 1}, 7);
  totals.unpin(pending);
  EXPECT_EQ(totals.take_group().size(), 1u);
  for (int i = 0; i < 50; ++i) totals.unpin(totals.pin("k" + std::to_string(i)));
  totals.trim(6);
  EXPECT_LE(totals.size(), 10u);
  EXPECT_EQ(&totals.pin("held"), &held);
  EXPECT_EQ(totals.pin("pending").total.value, 1);
}

TEST(MemEngine, FaultsComeByDemandAndBySeed) {
  mem::MemEngine engine;
  const auto commit = [&] {
    const auto t = engine.begin();
    t->add("n", 1);
    return t->commit(kOrdered).code();
  };
  engine.fail_next(mem::Fault::conflict);
  EXPECT_EQ(commit(), Errc::conflict);
  engine.fail_next(mem::Fault::lost_answer);
  EXPECT_EQ(commit(), Errc::unavailable);
  EXPECT_EQ(engine.begin()->total("n").value(), 1);
  engine.fail_next(mem::Fault::read_io);
  EXPECT_EQ(engine.begin()->total("n").code(), Errc::io);
  const auto draw = [&](std::uint64_t seed) {
    engine.set_faults(
        {.seed = seed, .conflict_one_in = 5, .io_one_in = 5, .lost_answer_one_in = 5});
    std::string codes;
    for (int i = 0; i < 100; ++i) codes += std::to_string(static_cast<int>(commit())) + " ";
    return codes;
  };
  const std::string once = draw(42);
  EXPECT_EQ(draw(42), once);
  EXPECT_NE(draw(43), once);
  for (const char* code : {"0 ", "29 ", "64 ", "68 "})
    EXPECT_NE(once.find(code), std::string::npos) << code;
}

TEST(MemEngine, CrashesUnderLoadLoseNothingThatWasAcknowledged) {
  mem::MemEngine engine;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  std::atomic<std::int64_t> acknowledged{0}, uncertain{0};
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      while (!stop) {
        const auto t = engine.begin();
        t->add("n", 1);
        t->put("row", "x");
        const Status status = t->commit(kDurable);
        status.ok() ? ++acknowledged : ++uncertain;
      }
    });
  for (int i = 0; i < 60; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    engine.crash(i % 2 == 0);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  const std::int64_t kept = engine.begin()->total("n").value();
  EXPECT_GE(kept, acknowledged);
  EXPECT_LE(kept, acknowledged + uncertain);
  EXPECT_GT(acknowledged, 0);
}

}  // namespace
}  // namespace starlane::kv::occ
