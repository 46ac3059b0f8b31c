#include "kv/conformance.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <map>
#include <set>
#include <thread>

#include "common/rng.h"

namespace starlane::kv {

Status EngineConformance::put(const std::string& key, const std::string& value,
                              Durability durability) {
  const auto t = engine().begin();
  t->put(key, value);
  return t->commit(durability);
}
Status EngineConformance::del(const std::string& key) {
  const auto t = engine().begin();
  t->del(key);
  return t->commit(Durability::ordered);
}
std::optional<std::string> EngineConformance::value(const std::string& key) {
  const auto row = engine().begin()->get(key);
  EXPECT_TRUE(row.ok()) << row.status().to_string();
  if (!row.ok() || !row->has_value()) return std::nullopt;
  return (*row)->value;
}
Version EngineConformance::version(const std::string& key) {
  const auto row = engine().begin()->get(key);
  EXPECT_TRUE(row.ok()) << row.status().to_string();
  return row.ok() && row->has_value() ? (*row)->version : kAbsent;
}
std::int64_t EngineConformance::total(const std::string& key) {
  const auto sum = engine().begin()->total(key);
  EXPECT_TRUE(sum.ok()) << sum.status().to_string();
  return sum.ok() ? *sum : -1;
}

namespace {

constexpr auto kOrdered = Durability::ordered;
constexpr auto kDurable = Durability::durable;

#define EXPECT_OK(expression)                               \
  do {                                                      \
    const Status expect_ok_ = (expression);                 \
    EXPECT_TRUE(expect_ok_.ok()) << expect_ok_.to_string(); \
  } while (false)

void in_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

std::uint64_t traced_seed(const char* what) {
  const std::uint64_t seed = random_seed();
  std::printf("%s: seed %llu\n", what, static_cast<unsigned long long>(seed));
  return seed;
}

// ---- reading and writing ----

TEST_P(EngineConformance, ATransactionSeesOneSnapshotAndNotItsOwnWrites) {
  EXPECT_OK(put("a", "1"));
  const auto t = engine().begin();
  t->put("a", "mine");
  t->put("b", "mine");
  EXPECT_OK(put("a", "2"));
  EXPECT_OK(put("c", "2"));
  EXPECT_EQ(t->get("a").value()->value, "1");
  EXPECT_FALSE(t->get("b").value());
  const auto rows = t->get_many({"c", "a", "b"});
  ASSERT_TRUE(rows.ok());
  EXPECT_FALSE((*rows)[0]);
  EXPECT_EQ((*rows)[1]->value, "1");
  EXPECT_EQ((*rows)[1]->key, "a");
  EXPECT_FALSE((*rows)[2]);
  EXPECT_EQ(t->scan({.first = "", .last = "", .limit = 10}).value().size(), 1u);
  EXPECT_OK(t->commit(kOrdered));  // Blind writes: the last one wins.
  EXPECT_EQ(value("a"), "mine");
  EXPECT_EQ(value("c"), "2");
}

TEST_P(EngineConformance, ATransactionIsCommittedAtMostOnce) {
  const auto t = engine().begin();
  t->add("n", 1);
  EXPECT_OK(t->commit(kOrdered));
  EXPECT_EQ(t->commit(kOrdered).code(), Errc::invalid);
  EXPECT_EQ(total("n"), 1);
}

TEST_P(EngineConformance, VersionsDifferAfterEveryChange) {
  EXPECT_EQ(version("a"), kAbsent);
  std::set<Version> seen;
  for (int i = 0; i < 5; ++i) {
    EXPECT_OK(put("a", "same"));
    EXPECT_TRUE(seen.insert(version("a")).second);
    EXPECT_OK(del("a"));
    EXPECT_EQ(version("a"), kAbsent);
  }
  EXPECT_OK(put("a", "same"));
  EXPECT_TRUE(seen.insert(version("a")).second);
  EXPECT_EQ(seen.count(kAbsent), 0u);
}

TEST_P(EngineConformance, TheLastWriteOfATransactionWins) {
  const auto t = engine().begin();
  t->put("a", "1");
  t->del("a");
  t->del("b");
  t->put("b", "2");
  EXPECT_OK(t->commit(kOrdered));
  EXPECT_EQ(value("a"), std::nullopt);
  EXPECT_EQ(value("b"), "2");
}

TEST_P(EngineConformance, BigScansArePagedInByteOrderOfOneSnapshot) {
  const std::uint64_t seed = traced_seed("big scans");
  Rng rng(seed);
  std::map<std::string, std::string> model;
  for (int batch = 0; batch < 30; ++batch) {
    const auto t = engine().begin();
    for (int i = 0; i < 100; ++i) {
      std::string key(1 + rng.below(12), '\0');
      for (char& c : key)
        c = static_cast<char>(rng.one_in(3) ? 0xff * rng.below(2) : rng.below(256));
      model[key] = std::to_string(rng.next());
      t->put(key, model[key]);
    }
    ASSERT_TRUE(t->commit(kOrdered).ok());
  }
  const auto reader = engine().begin();
  for (int i = 0; i < 50; ++i) EXPECT_OK(put("late" + std::to_string(i), "x"));
  std::vector<std::pair<std::string, std::string>> got;
  for (std::string from;;) {
    const auto page = reader->scan({.first = from, .last = "", .limit = 257});
    ASSERT_TRUE(page.ok());
    for (const Row& row : *page) got.emplace_back(row.key, row.value);
    if (page->size() < 257) break;
    from = page->back().key + '\0';
  }
  EXPECT_EQ(got, (std::vector<std::pair<std::string, std::string>>(model.begin(), model.end())));
  const auto middle =
      reader->scan({.first = "\x40", .last = std::string("\xc0"), .limit = 100'000});
  ASSERT_TRUE(middle.ok());
  EXPECT_EQ(static_cast<std::ptrdiff_t>(middle->size()),
            std::distance(model.lower_bound("\x40"), model.lower_bound("\xc0")));
}

TEST_P(EngineConformance, ScansDoNotMeetAccumulators) {
  const auto t = engine().begin();
  t->put("k1", "row");
  t->add("k2", 5);
  t->max("k3", 5);
  EXPECT_OK(t->commit(kOrdered));
  EXPECT_EQ(engine().begin()->scan({.first = "k", .last = "l", .limit = 10}).value().size(), 1u);
  const auto empty = engine().begin();
  empty->expect_empty("k2", "k4");
  EXPECT_OK(empty->commit(kOrdered));
}

// ---- what a commit depends on ----

TEST_P(EngineConformance, ExpectAbsentLetsOneCreatorWin) {
  const auto one = engine().begin();
  const auto two = engine().begin();
  one->expect("name", kAbsent);
  one->put("name", "one");
  two->expect("name", kAbsent);
  two->put("name", "two");
  EXPECT_OK(two->commit(kOrdered));
  EXPECT_EQ(one->commit(kOrdered).code(), Errc::conflict);
  EXPECT_EQ(value("name"), "two");
  // Created and removed again since: absent is absent.
  const auto three = engine().begin();
  EXPECT_OK(put("other", "x"));
  EXPECT_OK(del("other"));
  three->expect("other", kAbsent);
  three->put("other", "three");
  EXPECT_OK(three->commit(kOrdered));
}

TEST_P(EngineConformance, ExpectIsACompareAndSet) {
  EXPECT_OK(put("a", "1"));
  const Version first = version("a");
  const auto stale = engine().begin();
  EXPECT_OK(put("a", "2"));
  stale->expect("a", first);
  stale->put("a", "3");
  EXPECT_EQ(stale->commit(kOrdered).code(), Errc::conflict);
  // A version from an earlier transaction, and a snapshot that is newer than the change.
  const auto later = engine().begin();
  later->expect("a", first);
  EXPECT_EQ(later->commit(kOrdered).code(), Errc::conflict);
  const auto right = engine().begin();
  right->expect("a", version("a"));
  right->expect("nothing", kAbsent);
  right->put("a", "4");
  EXPECT_OK(right->commit(kOrdered));
  const auto gone = engine().begin();
  gone->expect("nothing", first);
  EXPECT_EQ(gone->commit(kOrdered).code(), Errc::conflict);
}

TEST_P(EngineConformance, AFailedCommitLeavesNothing) {
  EXPECT_OK(put("a", "1"));
  const auto t = engine().begin();
  t->guard("a");
  t->put("b", "x");
  t->del("a");
  t->add("n", 1);
  t->max("m", 7);
  EXPECT_OK(put("a", "2"));
  EXPECT_EQ(t->commit(kOrdered).code(), Errc::conflict);
  EXPECT_EQ(value("a"), "2");
  EXPECT_EQ(value("b"), std::nullopt);
  EXPECT_EQ(total("n"), 0);
  EXPECT_EQ(total("m"), 0);
}

TEST_P(EngineConformance, GuardsOfOneRowCommitSideBySide) {
  EXPECT_OK(put("head", "epoch 1"));
  const auto one = engine().begin();
  const auto two = engine().begin();
  one->guard("head");
  one->put("x", "1");
  two->guard("head");
  two->put("y", "1");
  EXPECT_OK(two->commit(kOrdered));
  EXPECT_OK(one->commit(kOrdered));
}

TEST_P(EngineConformance, AGuardHoldsOfAnAbsentRowToo) {
  const auto t = engine().begin();
  t->guard("later");
  t->put("x", "1");
  EXPECT_OK(put("later", "here"));
  EXPECT_EQ(t->commit(kOrdered).code(), Errc::conflict);
}

// The writer read epoch 5; the cut moved 5 to 6 and committed; a reader saw the state of 5. A row
// stamped 5 must not come into it afterwards.
TEST_P(EngineConformance, StaleGuardDoesNotCommitAfterTheCut) {
  EXPECT_OK(put("head", "5"));
  const auto writer = engine().begin();
  ASSERT_EQ(writer->get("head").value()->value, "5");
  writer->guard("head");
  writer->put("row", "stamped 5");
  const auto cut = engine().begin();
  cut->expect("head", cut->get("head").value()->version);
  cut->put("head", "6");
  EXPECT_OK(cut->commit(kOrdered));
  EXPECT_FALSE(engine().begin()->get("row").value());
  EXPECT_EQ(writer->commit(kOrdered).code(), Errc::conflict);
  EXPECT_EQ(value("row"), std::nullopt);
}

TEST_P(EngineConformance, AFencedSessionCannotCommitAfterAPause) {
  EXPECT_OK(put("session", "alive"));
  const auto paused = engine().begin();
  paused->guard("session");
  paused->put("data", "late");
  const auto fence = engine().begin();
  fence->touch("session");
  EXPECT_OK(fence->commit(kOrdered));
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(put("other" + std::to_string(i % 100), "x").ok());
  EXPECT_EQ(paused->commit(kOrdered).code(), Errc::conflict);
  EXPECT_EQ(value("data"), std::nullopt);
}

TEST_P(EngineConformance, TouchBreaksGuardsAndExpectsAndKeepsTheValue) {
  EXPECT_OK(put("a", "kept"));
  const Version before = version("a");
  const auto guarded = engine().begin();
  guarded->guard("a");
  guarded->put("x", "1");
  const auto expecting = engine().begin();
  expecting->expect("a", before);
  expecting->put("y", "1");
  const auto touch = engine().begin();
  touch->touch("a");
  EXPECT_OK(touch->commit(kOrdered));
  EXPECT_EQ(guarded->commit(kOrdered).code(), Errc::conflict);
  EXPECT_EQ(expecting->commit(kOrdered).code(), Errc::conflict);
  EXPECT_EQ(value("a"), "kept");
  EXPECT_NE(version("a"), before);
  const auto both = engine().begin();
  both->put("a", "new");
  both->touch("a");
  EXPECT_OK(both->commit(kOrdered));
  EXPECT_EQ(value("a"), "new");
  const auto absent = engine().begin();
  absent->touch("nothing");
  EXPECT_EQ(absent->commit(kOrdered).code(), Errc::not_found);
}

TEST_P(EngineConformance, ATouchNeverBringsAnOldValueBack) {
  EXPECT_OK(put("a", "old"));
  const auto touch = engine().begin();
  touch->touch("a");
  EXPECT_OK(put("a", "new"));
  const Status status = touch->commit(kOrdered);
  EXPECT_TRUE(status.ok() || status.code() == Errc::conflict) << status.to_string();
  EXPECT_EQ(value("a"), "new");
  const auto late = engine().begin();
  late->touch("a");
  EXPECT_OK(del("a"));
  EXPECT_FALSE(late->commit(kOrdered).ok());
  EXPECT_EQ(value("a"), std::nullopt);
}

TEST_P(EngineConformance, WriteSkewIsFoundByGuards) {
  EXPECT_OK(put("doctor/a", "on"));
  EXPECT_OK(put("doctor/b", "on"));
  const auto one = engine().begin();
  const auto two = engine().begin();
  one->guard("doctor/b");
  one->put("doctor/a", "off");
  two->guard("doctor/a");
  two->put("doctor/b", "off");
  EXPECT_OK(one->commit(kOrdered));
  EXPECT_EQ(two->commit(kOrdered).code(), Errc::conflict);
}

TEST_P(EngineConformance, AReadOnlyTransactionDuringACut) {
  EXPECT_OK(put("head", "5"));
  EXPECT_OK(put("row", "old"));
  const auto guarded = engine().begin();
  const auto plain = engine().begin();
  const auto cut = engine().begin();
  cut->put("head", "6");
  cut->put("row", "new");
  EXPECT_OK(cut->commit(kOrdered));
  EXPECT_EQ(guarded->get("head").value()->value, "5");
  EXPECT_EQ(guarded->get("row").value()->value, "old");
  guarded->guard("head");
  EXPECT_EQ(guarded->commit(kOrdered).code(), Errc::conflict);
  EXPECT_EQ(plain->get("row").value()->value, "old");
  EXPECT_OK(plain->commit(kDurable));  // Asked for nothing.
}

TEST_P(EngineConformance, PhantomRmdirAgainstCreate) {
  for (const bool create_first : {true, false}) {
    EXPECT_OK(put("I/dir", "directory"));
    const auto rmdir = engine().begin();
    ASSERT_TRUE(rmdir->scan({.first = "D/dir/", .last = "D/dir0"}).value().empty());
    rmdir->expect_empty("D/dir/", "D/dir0");
    rmdir->expect("I/dir", rmdir->get("I/dir").value()->version);
    rmdir->del("I/dir");
    const auto create = engine().begin();
    create->guard("I/dir");
    create->expect("D/dir/new", kAbsent);
    create->put("D/dir/new", "entry");
    if (create_first) {
      EXPECT_OK(create->commit(kOrdered));
      EXPECT_EQ(rmdir->commit(kOrdered).code(), Errc::conflict);
      EXPECT_OK(del("D/dir/new"));
    } else {
      EXPECT_OK(rmdir->commit(kOrdered));
      EXPECT_EQ(create->commit(kOrdered).code(), Errc::conflict);
    }
  }
}

TEST_P(EngineConformance, ExpectEmptySeesTheMomentOfCommit) {
  EXPECT_OK(put("r/1", "x"));
  const auto t = engine().begin();
  t->expect_empty("r/", "r0");
  t->put("done", "1");
  EXPECT_OK(del("r/1"));
  EXPECT_OK(t->commit(kOrdered));  // Empty by now, and it is now that counts.
  EXPECT_OK(put("r/1", "x"));
  const auto own = engine().begin();
  own->expect_empty("r/", "r0");
  own->del("r/1");
  EXPECT_EQ(own->commit(kOrdered).code(), Errc::conflict);  // Judged before its own writes.
  const auto mine = engine().begin();
  mine->expect_empty("q/", "q0");
  mine->put("q/1", "x");
  EXPECT_OK(mine->commit(kOrdered));
  const auto all = engine().begin();
  all->expect_empty("s", "");
  EXPECT_OK(all->commit(kOrdered));
}

/// Directories that threads make, fill and remove. Whatever happens, no entry is without its
/// directory.
TEST_P(EngineConformance, NoOrphansUnderRacingRmdirAndCreate) {
  const std::uint64_t seed = traced_seed("no orphans");
  std::atomic<int> created{0}, removed{0};  // pair with the checks after the joins
  const auto one_step = [&](Rng& rng, int thread, int step) {
    const std::string dir = std::to_string(rng.below(3));
    const auto t = engine().begin();
    const auto inode = t->get("I/" + dir);
    if (!inode->has_value()) {
      t->expect("I/" + dir, kAbsent);
      t->put("I/" + dir, "directory");
    } else if (rng.one_in(2)) {
      t->guard("I/" + dir);
      t->put("D/" + dir + "/" + std::to_string(thread) + "." + std::to_string(step), "e");
      if (t->commit(kOrdered).ok()) ++created;
      return;
    } else if (const auto names = t->scan({.first = "D/" + dir + "/", .last = "D/" + dir + "0"});
               !names->empty()) {
      for (const Row& row : *names) t->del(row.key);
    } else {
      t->expect("I/" + dir, (*inode)->version);
      t->expect_empty("D/" + dir + "/", "D/" + dir + "0");
      t->del("I/" + dir);
      if (t->commit(kOrdered).ok()) ++removed;
      return;
    }
    (void)t->commit(kOrdered);
  };
  in_threads(8, [&](int thread) {
    Rng rng(seed + static_cast<std::uint64_t>(thread));
    for (int step = 0; step < 400; ++step) one_step(rng, thread, step);
  });
  const auto rows = engine().begin()->scan({.first = "D/", .last = "D0", .limit = 100'000});
  ASSERT_TRUE(rows.ok());
  for (const Row& row : *rows) EXPECT_TRUE(value("I/" + row.key.substr(2, 1))) << row.key;
  EXPECT_GT(created, 0);
  EXPECT_GT(removed, 0);
}

TEST_P(EngineConformance, AnOldTransactionIsJudgedRightlyOrNotAtAll) {
  EXPECT_OK(put("watched", "1"));
  const auto harmless = engine().begin();
  const auto stale = engine().begin();
  for (const auto& t : {&harmless, &stale}) (*t)->guard("watched");
  harmless->put("x", "1");
  stale->put("y", "1");
  for (int i = 0; i < 3000; ++i) ASSERT_TRUE(put("k" + std::to_string(i), "v").ok());
  const Status status = harmless->commit(kOrdered);
  EXPECT_TRUE(status.ok() || status.code() == Errc::conflict) << status.to_string();
  EXPECT_OK(put("watched", "2"));
  for (int i = 0; i < 3000; ++i) ASSERT_TRUE(put("k" + std::to_string(i), "v").ok());
  EXPECT_EQ(stale->commit(kOrdered).code(), Errc::conflict);
}

// ---- accumulators ----

TEST_P(EngineConformance, AccumulatorsFold) {
  const auto t = engine().begin();
  t->add("n", 5);
  t->add("n", -2);
  t->max("m", -7);
  EXPECT_OK(t->commit(kOrdered));
  const auto u = engine().begin();
  u->max("m", -9);
  u->add("n", 1);
  EXPECT_EQ(u->total("n").value(), 3);  // Its snapshot.
  EXPECT_OK(u->commit(kOrdered));
  EXPECT_EQ(engine().begin()->totals({"m", "n", "none"}).value(),
            (std::vector<std::int64_t>{-7, 4, 0}));
  const auto clear = engine().begin();
  clear->clear("n");
  clear->clear("m");
  clear->add("n", 10);
  EXPECT_OK(clear->commit(kOrdered));
  EXPECT_EQ(engine().begin()->totals({"m", "n"}).value(), (std::vector<std::int64_t>{0, 10}));
}

TEST_P(EngineConformance, CountersAreExactUnderContention) {
  EXPECT_OK(put("head", "1"));
  std::atomic<std::int64_t> sum{0}, greatest{0};  // pair with the checks after the joins
  in_threads(16, [&](int thread) {
    Rng rng(static_cast<std::uint64_t>(thread) + 1);
    for (int i = 0; i < 200; ++i) {
      const auto t = engine().begin();
      t->guard("head");
      const auto amount = static_cast<std::int64_t>(rng.below(1000)) - 300;
      t->add("n", amount);
      t->max("m", amount);
      t->put("row" + std::to_string(thread), std::to_string(i));
      if (i % 50 == 7) t->touch("head");  // Some must lose, and count for nothing.
      const Status status = t->commit(kOrdered);
      ASSERT_TRUE(status.ok() || status.code() == Errc::conflict) << status.to_string();
      if (!status.ok()) continue;
      sum += amount;
      for (std::int64_t seen = greatest;
           seen < amount && !greatest.compare_exchange_weak(seen, amount);) {
      }
    }
  });
  EXPECT_EQ(total("n"), sum);
  EXPECT_EQ(total("m"), greatest);
  subject_->restart();
  EXPECT_EQ(total("n"), sum);
  EXPECT_EQ(total("m"), greatest);
}

TEST_P(EngineConformance, ABoundedAddStopsAtItsLimit) {
  constexpr std::int64_t kLimit = 1000;
  std::atomic<std::int64_t> granted{0}, refused{0};  // pair with the checks after the joins
  in_threads(8, [&](int thread) {
    for (int i = 0; i < 60; ++i) {
      const auto t = engine().begin();
      const std::int64_t amount = 1 + (thread + i) % 5;
      t->add_limited("used", amount, kLimit);
      t->add("commits", 1);
      const Status status = t->commit(kOrdered);
      ASSERT_TRUE(status.ok() || status.code() == Errc::quota) << status.to_string();
      status.ok() ? granted += amount : refused += 1;
    }
  });
  EXPECT_EQ(total("used"), granted);
  EXPECT_LE(granted, kLimit);
  EXPECT_GT(granted, kLimit - 5);
  EXPECT_EQ(total("commits"), 8 * 60 - refused);
  const auto exact = engine().begin();
  exact->add_limited("used", kLimit - granted, kLimit);
  EXPECT_OK(exact->commit(kOrdered));
  const auto over = engine().begin();
  over->add_limited("used", -5, 0);  // Giving back never fails.
  EXPECT_OK(over->commit(kOrdered));
  const auto within = engine().begin();
  within->add_limited("used", 5, kLimit);
  within->add_limited("used", 1, kLimit);
  within->put("never", "x");
  EXPECT_EQ(within->commit(kOrdered).code(), Errc::quota);
  EXPECT_EQ(total("used"), kLimit - 5);
  EXPECT_EQ(value("never"), std::nullopt);
}

// ---- order and visibility ----

TEST_P(EngineConformance, ACommitThatReturnedIsSeenByEveryLaterBegin) {
  std::atomic<int> returned{0};  // stored after the commit, loaded before begin()
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i)
    others.emplace_back([&, i] {
      for (int n = 0; !stop; ++n) EXPECT_OK(put("noise" + std::to_string(i), std::to_string(n)));
    });
  for (int i = 0; i < 2; ++i)
    others.emplace_back([&] {
      while (!stop) {
        const int least = returned;
        const auto seen = value("n");
        EXPECT_GE(seen ? std::stoi(*seen) : 0, least);
      }
    });
  for (int n = 1; n <= 500; ++n) {
    EXPECT_OK(put("n", std::to_string(n)));
    returned = n;
  }
  stop = true;
  for (std::thread& thread : others) thread.join();
}

TEST_P(EngineConformance, NobodySeesHalfACommit) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (int w = 0; w < 4; ++w)
    writers.emplace_back([&, w] {
      const std::string mine = std::to_string(w);
      for (int n = 1; !stop; ++n) {
        const auto t = engine().begin();
        t->put("a" + mine, std::to_string(n));
        t->put("z" + mine, std::to_string(n));
        t->add("sum", 1);
        t->add("twice", 2);
        EXPECT_OK(t->commit(kOrdered));
      }
    });
  for (std::int64_t i = 0, commits = 0; i < 400 || commits < 2000; ++i) {
    const auto t = engine().begin();
    const std::string w = std::to_string(i % 4);
    const auto first = t->get("a" + w);
    const auto sum = t->total("sum");
    const auto second = t->get("z" + w);
    ASSERT_TRUE(first.ok() && second.ok() && sum.ok());
    EXPECT_EQ(first->has_value(), second->has_value());
    if (first->has_value() && second->has_value()) {
      EXPECT_EQ((*first)->value, (*second)->value);
    }
    EXPECT_EQ(t->total("twice").value(), 2 * *sum);
    commits = *sum;
  }
  stop = true;
  for (std::thread& thread : writers) thread.join();
}

/// Transfers between accounts whose outcome depends on what was read. Checked by another route:
/// each thread's own record of the transfers that were acknowledged.
TEST_P(EngineConformance, SixteenThreadsMoveMoneyAndNoneIsLost) {
  constexpr int kAccounts = 12, kThreads = 16, kSteps = 150;
  const std::uint64_t seed = traced_seed("bank");
  const auto account = [](std::uint64_t n) { return "account" + std::to_string(10 + n); };
  for (int i = 0; i < kAccounts; ++i)
    ASSERT_TRUE(put(account(static_cast<std::uint64_t>(i)), "100").ok());
  std::vector<std::array<int, kAccounts>> moved(kThreads);
  std::atomic<int> done{0};
  in_threads(kThreads + 1, [&](int thread) {
    Rng rng(seed + static_cast<std::uint64_t>(thread));
    if (thread == kThreads) {  // An auditor.
      while (done < kThreads) {
        const auto rows = engine().begin()->scan({.first = "account", .last = "b"});
        ASSERT_TRUE(rows.ok());
        int sum = 0;
        for (const Row& row : *rows) sum += std::stoi(row.value);
        ASSERT_EQ(sum, 100 * kAccounts);
      }
      return;
    }
    auto& mine = moved[static_cast<std::size_t>(thread)];
    mine.fill(0);
    for (int step = 0; step < kSteps; ++step) {
      const std::uint64_t from = rng.below(kAccounts),
                          to = (from + 1 + rng.below(kAccounts - 1)) % kAccounts;
      int amount = 0;
      const Status status = run(
          engine(), rng.one_in(20) ? kDurable : kOrdered,
          [&](Transaction& t) {
            const auto rows = t.get_many({account(from), account(to)});
            if (!rows.ok()) return rows.status();
            const int has = std::stoi((*rows)[0]->value), other = std::stoi((*rows)[1]->value);
            amount = has / 2;
            // One is written and expected; the other only written where it depends on itself:
            // expected too.
            t.expect(account(from), (*rows)[0]->version);
            t.expect(account(to), (*rows)[1]->version);
            t.put(account(from), std::to_string(has - amount));
            t.put(account(to), std::to_string(other + amount));
            return Status();
          },
          10'000);
      ASSERT_TRUE(status.ok()) << status.to_string();
      mine[from] -= amount;
      mine[to] += amount;
    }
    ++done;
  });
  for (std::size_t i = 0; i < kAccounts; ++i) {
    int want = 100;
    for (const auto& mine : moved) want += mine[i];
    EXPECT_EQ(value(account(i)), std::to_string(want));
  }
}

/// A random history, one transaction at a time but several open at once, against a map.
class History {
 public:
  History(Subject& subject, std::uint64_t seed) : subject_(subject), rng_(seed) {}

  void step() {
    if (rng_.one_in(150)) {
      subject_.restart();
    } else if (rng_.one_in(20)) {
      compare();
    } else {
      commit_one();
    }
  }
  void compare() {
    const auto t = subject_.engine().begin();
    const auto all = t->scan({.first = "", .last = "", .limit = 10'000});
    ASSERT_TRUE(all.ok());
    std::map<std::string, std::string> got;
    for (const Row& row : *all) got[row.key] = row.value;
    ASSERT_EQ(got, rows_);
    for (const auto& [key, sum] : totals_) ASSERT_EQ(t->total(key).value(), sum) << key;
  }

 private:
  std::string key() { return "k" + std::to_string(rng_.below(30)); }

  void commit_one() {
    const auto t = subject_.engine().begin();
    bool must_fail = false;
    if (rng_.one_in(3)) must_fail |= ask(*t);
    auto rows = rows_;
    auto totals = totals_;
    for (std::uint64_t n = rng_.below(6); n > 0; --n) change(*t, rows, totals);
    if (rng_.one_in(10)) must_fail |= disturb(*t, rows, totals);
    const Status status = t->commit(rng_.one_in(10) ? Durability::durable : Durability::ordered);
    ASSERT_EQ(status.code(), must_fail ? Errc::conflict : Errc::ok) << status.to_string();
    if (must_fail) return;
    rows_ = rows;
    totals_ = totals;
  }
  /// True: the question's answer is no.
  bool ask(Transaction& t) {
    const std::string k = key();
    const auto row = t.get(k).value();
    EXPECT_EQ(row.has_value(), rows_.count(k) == 1);
    if (rng_.one_in(2)) {
      const std::string last = k + "5";
      t.expect_empty(k, last);
      return rows_.lower_bound(k) != rows_.lower_bound(last);
    }
    const bool wrong = rng_.one_in(5);
    const Version right = row ? row->version : kAbsent;
    t.expect(k, wrong ? right + 1 : right);
    return wrong;
  }
  void change(Transaction& t, std::map<std::string, std::string>& rows,
              std::map<std::string, std::int64_t>& totals) {
    const std::string k = key();
    switch (rng_.below(5)) {
      case 0:
        t.del(k);
        rows.erase(k);
        break;
      case 1: {
        const auto amount = static_cast<std::int64_t>(rng_.below(100)) - 50;
        t.add("sum" + k, amount);
        totals["sum" + k] += amount;
        break;
      }
      case 2:
        t.clear("sum" + k);
        totals["sum" + k] = 0;
        break;
      default:
        rows[k] = std::to_string(rng_.next());
        t.put(k, rows[k]);
    }
  }
  /// Another transaction changes a row meanwhile; the open one guarded it, or another.
  bool disturb(Transaction& t, std::map<std::string, std::string>& rows,
               std::map<std::string, std::int64_t>&) {
    const std::string theirs = "other" + std::to_string(rng_.below(3)),
                      guarded = "other" + std::to_string(rng_.below(3));
    t.guard(guarded);
    const auto other = subject_.engine().begin();
    other->put(theirs, "x");
    EXPECT_TRUE(other->commit(Durability::ordered).ok());
    rows_[theirs] = rows[theirs] = "x";
    return theirs == guarded;
  }

  Subject& subject_;
  Rng rng_;
  std::map<std::string, std::string> rows_;
  std::map<std::string, std::int64_t> totals_;
};

TEST_P(EngineConformance, ARandomHistoryMatchesAModel) {
  History history(*subject_, traced_seed("random history"));
  for (int i = 0; i < 3000 && !HasFatalFailure(); ++i) history.step();
  history.compare();
}

// ---- failures ----

TEST_P(EngineConformance, ACommitWhoseAnswerIsLostIsNotDoneTwice) {
  EXPECT_OK(put("W", "0"));
  const auto attempt = [&] {
    const auto t = engine().begin();
    const auto bit = t->get("W").value();
    if (bit->value == "1") return Status();  // This commit happened.
    t->expect("W", bit->version);
    t->put("W", "1");
    t->add("bytes", 4096);
    return t->commit(kOrdered);
  };
  const bool staged = subject_->lose_next_answer();
  const Status first = attempt();
  EXPECT_EQ(first.code(), staged ? Errc::unavailable : Errc::ok);
  EXPECT_OK(attempt());
  EXPECT_EQ(total("bytes"), 4096);
  subject_->restart();
  EXPECT_OK(attempt());
  EXPECT_EQ(total("bytes"), 4096);
}

TEST_P(EngineConformance, OrderedCommitsSurviveTheProcess) {
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(put("k" + std::to_string(i), std::to_string(i)).ok());
    if (i % 67 == 0) subject_->restart();
  }
  subject_->restart();
  for (int i = 0; i < 200; ++i) EXPECT_EQ(value("k" + std::to_string(i)), std::to_string(i));
}

TEST_P(EngineConformance, VersionsAreNotGivenAgainAfterARestart) {
  std::set<Version> seen;
  for (int round = 0; round < 6; ++round) {
    for (int i = 0; i < 10; ++i) {
      EXPECT_OK(put("a", "x"));
      EXPECT_TRUE(seen.insert(version("a")).second);
    }
    const Version before = version("a");
    subject_->restart();
    EXPECT_EQ(version("a"), before);
    for (int i = 0; i < 10; ++i) {
      EXPECT_OK(put("a", "y"));
      EXPECT_TRUE(seen.insert(version("a")).second);
    }
    (void)subject_->lose_power();  // Takes some of them back.
  }
}

/// After power loss the state is that after some commit, and not before the last durable one.
TEST_P(EngineConformance, DurableCommitsSurvivePowerLoss) {
  const std::uint64_t seed = traced_seed("power loss");
  Rng rng(seed);
  int n = 0;
  for (int round = 0; round < 20; ++round) {
    int durable = n;
    for (std::uint64_t left = rng.below(30); left > 0; --left) {
      const auto t = engine().begin();
      t->put("n", std::to_string(++n));
      t->put("k" + std::to_string(n), "x");
      t->add("count", 1);
      const bool sync = rng.one_in(8);
      ASSERT_TRUE(t->commit(sync ? kDurable : kOrdered).ok());
      if (rng.one_in(8)) {
        ASSERT_TRUE(engine().flush().ok());
        durable = n;
      }
      if (sync) durable = n;
    }
    if (!subject_->lose_power()) {
      subject_->restart();
      durable = n;
    }
    const int kept = value("n") ? std::stoi(*value("n")) : 0;
    ASSERT_GE(kept, durable);
    ASSERT_LE(kept, n);
    ASSERT_EQ(total("count"), kept);
    for (int i = 1; i <= n; ++i)
      ASSERT_EQ(value("k" + std::to_string(i)).has_value(), i <= kept) << i;
    n = kept;
    ASSERT_TRUE(engine().flush().ok());
  }
}

TEST_P(EngineConformance, TheHookRunsBeforeEveryFlushAndItsFailureFailsIt) {
  std::atomic<int> calls{0};
  std::atomic<bool> broken{false};
  engine().set_before_flush([&] {
    ++calls;
    return broken ? Status(Errc::io, "a target is away") : Status();
  });
  EXPECT_OK(put("a", "1"));
  EXPECT_EQ(calls, 0);
  EXPECT_OK(put("a", "2", kDurable));
  EXPECT_EQ(calls, 1);
  EXPECT_OK(put("a", "3"));
  EXPECT_OK(engine().flush());
  EXPECT_EQ(calls, 2);
  broken = true;
  EXPECT_EQ(put("a", "4", kDurable).code(), Errc::io);
  EXPECT_EQ(engine().flush().code(), Errc::io);
  EXPECT_OK(put("a", "5"));
  EXPECT_EQ(value("a"), "5");
  broken = false;
  EXPECT_OK(engine().flush());
  engine().set_before_flush({});
}

TEST_P(EngineConformance, ManyDurableCommitsShareFlushes) {
  std::atomic<int> flushes{0};
  engine().set_before_flush([&] {
    ++flushes;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return Status();
  });
  in_threads(16, [&](int thread) {
    for (int i = 0; i < 40; ++i) {
      const auto t = engine().begin();
      t->put("k" + std::to_string(thread), std::to_string(i));
      t->add("n", 1);
      EXPECT_OK(t->commit(i % 4 == 3 ? kOrdered : kDurable));
    }
  });
  EXPECT_EQ(total("n"), 16 * 40);
  EXPECT_LT(flushes, 16 * 30 / 2);
  engine().set_before_flush({});
}

TEST_P(EngineConformance, RunTriesAgainAfterConflictsOnly) {
  EXPECT_OK(put("a", "0"));
  int tries = 0;
  EXPECT_OK(run(engine(), kOrdered, [&](Transaction& t) {
    const auto row = t.get("a");
    t.expect("a", (*row)->version);
    t.put("a", std::to_string(std::stoi((*row)->value) + 1));
    return ++tries <= 3 ? put("a", std::to_string(100 * tries)) : Status();
  }));
  EXPECT_EQ(tries, 4);
  EXPECT_EQ(value("a"), "301");
  tries = 0;
  EXPECT_EQ(
      run(engine(), kOrdered, [&](Transaction&) { return ++tries, Status(Errc::not_empty, "no"); })
          .code(),
      Errc::not_empty);
  EXPECT_EQ(tries, 1);
  const auto always = [&](Transaction& t) {
    t.guard("a");
    return ++tries, put("a", "x");
  };
  EXPECT_EQ(run(engine(), kOrdered, always, 5).code(), Errc::conflict);
  EXPECT_EQ(tries, 6);
}

}  // namespace
}  // namespace starlane::kv
