// Fences, repeated calls, lost answers and races.
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "common/rng.h"
#include "kv/mem/mem_engine.h"
#include "meta/nodes.h"
#include "meta/ops/test_volume.h"

namespace starlane::meta {
namespace {

using kv::mem::Fault;

class Safety : public testing::Test {
 protected:
  Safety() : v(engine) {
    make_branch(engine, BranchId{7});
    let_in(engine, BranchId{7}, SessionId{5}, 11);
    v.on.set_session(5);
    v.on.set_attachment_epoch(11);
  }
  void remove(const std::string& key) {
    ASSERT_TRUE(kv::run(engine, kv::Durability::ordered, [&](kv::Transaction& t) -> Status {
                  t.del(key);
                  return {};
                }).ok());
  }

  kv::mem::MemEngine engine;
  TestVolume v;
};

TEST_F(Safety, EndedSessionsAreFenced) {
  const std::uint64_t f = v.create(1, "f").value().inode();
  ASSERT_TRUE(v.write(f, 0, 10).ok());
  remove(session_key(SessionId{5}));
  EXPECT_EQ(v.create(1, "g").code(), Errc::fenced);
  EXPECT_EQ(v.write(f, 0, 10).code(), Errc::fenced);
  EXPECT_EQ(v.unlink(1, "f").code(), Errc::fenced);
  EXPECT_TRUE(v.attributes(f).ok());
}

TEST_F(Safety, OldAttachmentsAreFenced) {
  let_in(engine, BranchId{7}, SessionId{5}, 12);
  EXPECT_EQ(v.create(1, "g").code(), Errc::fenced);
  v.on.set_attachment_epoch(12);
  EXPECT_TRUE(v.create(1, "g").ok());
  let_in(engine, BranchId{7}, SessionId{5}, 12, kAttachedReadOnly);
  EXPECT_EQ(v.create(1, "h").code(), Errc::read_only);
  remove(attachment_key(BranchId{7}, SessionId{5}));
  EXPECT_EQ(v.create(1, "h").code(), Errc::fenced);
}

TEST_F(Safety, AReservationSurvivesPowerLossAndNoNumberIsGivenTwice) {
  const std::uint64_t first = v.reserve(4).value().first();
  const std::uint64_t inode = v.create(1, "f").value().inode();
  engine.crash(true);
  EXPECT_EQ(v.rows(Table::reserved).size(), 1U) << "else blocks under these ids are nobody's";
  TestVolume next(engine);  // the process that comes after
  next.on = v.on;
  EXPECT_GE(next.reserve(4).value().first(), first + 4);
  EXPECT_NE(next.create(1, "g").value().inode(), inode);
}

TEST_F(Safety, OnlyThePublisherWrites) {
  edit_head(engine, BranchId{7}, [](HeadRow& head) { head.writer = SessionId{6}; });
  EXPECT_EQ(v.create(1, "f").code(), Errc::read_only);
  edit_head(engine, BranchId{7}, [](HeadRow& head) { head.writer = SessionId{5}; });
  EXPECT_TRUE(v.create(1, "f").ok());
  edit_head(engine, BranchId{7}, [](HeadRow& head) { head.state = BranchState::deleting; });
  EXPECT_EQ(v.create(1, "g").code(), Errc::not_found);
  v.on.set_branch(99);
  v.on.set_attachment_epoch(0);
  EXPECT_EQ(v.create(1, "g").code(), Errc::not_found);
}

/// A session that ends between an operation's reads and its commit: the engine stops the writer by
/// its guard.
TEST_F(Safety, AFenceAfterThePauseHolds) {
  Access access{BranchId{7}, SessionId{5}, 0, 11};
  pb::Empty reply;
  int runs = 0;
  const Status late =
      change_branch(v.context(), access, 0, {}, &reply, [&](Change& change, Rows&) -> Status {
        if (runs++ == 0) remove(session_key(SessionId{5}));
        change.t.put(inode_key(BranchId{7}, InodeId{1000}), InodeRow{}.encode());
        return {};
      });
  EXPECT_EQ(late.code(), Errc::fenced);
  EXPECT_EQ(runs, 1);
}

TEST_F(Safety, RepeatedCallsAreAnsweredAsBefore) {
  v.on.set_request(1);
  const pb::Attributes made = v.create(1, "a").value();
  EXPECT_EQ(v.create(1, "a").value().SerializeAsString(), made.SerializeAsString());
  v.on.set_request(2);
  EXPECT_EQ(v.create(1, "a").code(), Errc::exists) << "another call is another call";
  v.on.set_request(3);
  const auto moved = v.rename(1, "a", 1, "b").value();
  EXPECT_EQ(v.rename(1, "a", 1, "b")->SerializeAsString(), moved.SerializeAsString());
  v.on.set_request(4);
  EXPECT_EQ(v.link(made.inode(), 1, "c")->nlink(), 2u);
  EXPECT_EQ(v.link(made.inode(), 1, "c")->nlink(), 2u);
  v.on.set_request(5);
  EXPECT_TRUE(v.unlink(1, "c").ok());
  EXPECT_TRUE(v.unlink(1, "c").ok());
  v.on.set_request(6);
  const std::uint64_t d = v.mkdir(1, "d").value().inode();
  EXPECT_EQ(v.mkdir(1, "d")->inode(), d);
  v.on.set_request(7);
  EXPECT_TRUE(v.rmdir(1, "d").ok());
  EXPECT_TRUE(v.rmdir(1, "d").ok());
  EXPECT_EQ(v.unlink(1, "b").code(), Errc::protocol) << "one number for two calls";
  EXPECT_EQ(v.attributes(1)->entries(), 1u);
  EXPECT_EQ(v.total(What::inodes), 2);
}

TEST_F(Safety, LostAnswersAreFoundAgain) {
  v.on.set_request(1);
  ASSERT_TRUE(v.reserve(1).ok());  // ids are at hand, so that the next commit is the operation's
  ASSERT_TRUE(v.create(1, "warm").ok());
  v.on.set_request(2);
  engine.fail_next(Fault::lost_answer);
  EXPECT_EQ(v.create(1, "a").code(), Errc::unavailable);
  EXPECT_TRUE(v.create(1, "a").ok());
  v.on.set_request(3);
  engine.fail_next(Fault::lost_answer);
  EXPECT_EQ(v.unlink(1, "a").code(), Errc::unavailable);
  EXPECT_TRUE(v.unlink(1, "a").ok());
  const std::uint64_t f = v.lookup(1, "warm").value().inode();
  pb::CommitRequest request;
  request.set_inode(f);
  request.set_append(true);
  const pb::ReserveSlicesReply reserved = v.reserve(1).value();
  pb::NewSlice* slice = request.add_slices();
  slice->set_batch(reserved.batch());
  slice->mutable_entry()->set_slice(reserved.first());
  slice->mutable_entry()->set_length(10);
  slice->mutable_entry()->set_slice_length(10);
  v.on.set_request(0);
  EXPECT_EQ(v.commit(request).code(), Errc::invalid)
      << "an append without a number could happen twice";
  v.on.set_request(4);
  engine.fail_next(Fault::lost_answer);
  EXPECT_EQ(v.commit(request).code(), Errc::unavailable);
  EXPECT_EQ(v.commit(request)->appended_at(), 0u);
  EXPECT_EQ(v.attributes(f)->length(), 10u);
}

TEST_F(Safety, NumbersAreNeverGivenTwice) {
  std::set<std::uint64_t> seen;
  for (int server = 0; server < 3;
       ++server) {  // each begins where the engine says, not where the last one was
    TestVolume one(engine);
    for (int i = 0; i < 10; ++i) {
      EXPECT_TRUE(
          seen.insert(one.create(1, std::to_string(server * 100 + i)).value().inode()).second);
    }
  }
  EXPECT_FALSE(seen.contains(1));
  std::set<std::uint64_t> slices;
  std::mutex m;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 3000; ++i) {
        const std::uint64_t first = v.context().new_slices(64).value().value;
        std::lock_guard lock(m);
        for (std::uint64_t s = first; s < first + 64; ++s) EXPECT_TRUE(slices.insert(s).second);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// Both sides run `rounds` times against each other; whatever wins, the tree stays whole.
void race(int rounds, const std::function<void(int)>& left, const std::function<void(int)>& right) {
  std::atomic<int> at{0};
  const auto side = [&](const std::function<void(int)>& run) {
    for (int i = 0; i < rounds; ++i) {
      ++at;
      while (at.load() < 2 * (i + 1)) std::this_thread::yield();
      run(i);
    }
  };
  std::thread other([&] { side(right); });
  side(left);
  other.join();
}

TEST_F(Safety, RemoveDirectoryAgainstCreate) {
  TestVolume w(engine);
  std::vector<std::uint64_t> dirs;
  constexpr int kRounds = 200;
  for (int i = 0; i < kRounds; ++i)
    dirs.push_back(v.mkdir(1, "d" + std::to_string(i)).value().inode());
  std::vector<char> removed(kRounds);
  std::vector<char> made(kRounds);
  const auto index = [](int i) { return static_cast<std::size_t>(i); };
  race(
      kRounds, [&](int i) { removed[index(i)] = v.rmdir(1, "d" + std::to_string(i)).ok(); },
      [&](int i) { made[index(i)] = w.create(dirs[index(i)], "f").ok(); });
  int won = 0;
  for (int i = 0; i < kRounds; ++i) {
    EXPECT_NE(removed[index(i)], made[index(i)]) << i;
    won += removed[index(i)];
    EXPECT_EQ(v.lookup(dirs[index(i)], "f").ok(), made[index(i)] != 0);
  }
  EXPECT_EQ(v.attributes(1)->nlink(), 2u + static_cast<unsigned>(kRounds - won));
  EXPECT_EQ(v.total(What::inodes), 1 + 2 * (kRounds - won));
}

TEST_F(Safety, RenamesNeverTieACycle) {
  TestVolume w(engine);
  constexpr int kRounds = 200;
  std::vector<std::uint64_t> a;
  std::vector<std::uint64_t> b;
  for (int i = 0; i < kRounds; ++i) {
    a.push_back(v.mkdir(1, "a" + std::to_string(i)).value().inode());
    b.push_back(v.mkdir(1, "b" + std::to_string(i)).value().inode());
  }
  std::vector<char> first(kRounds);
  std::vector<char> second(kRounds);
  const auto index = [](int i) { return static_cast<std::size_t>(i); };
  race(
      kRounds,
      [&](int i) { first[index(i)] = v.rename(1, "a" + std::to_string(i), b[index(i)], "x").ok(); },
      [&](int i) {
        second[index(i)] = w.rename(1, "b" + std::to_string(i), a[index(i)], "x").ok();
      });
  for (int i = 0; i < kRounds; ++i) EXPECT_NE(first[index(i)], second[index(i)]) << i;
}

TEST_F(Safety, LinkAgainstUnlinkOfTheLastName) {
  TestVolume w(engine);
  constexpr int kRounds = 200;
  std::vector<std::uint64_t> files;
  for (int i = 0; i < kRounds; ++i)
    files.push_back(v.create(1, "f" + std::to_string(i)).value().inode());
  const auto index = [](int i) { return static_cast<std::size_t>(i); };
  std::vector<char> linked(kRounds);
  race(
      kRounds, [&](int i) { EXPECT_TRUE(v.unlink(1, "f" + std::to_string(i)).ok()); },
      [&](int i) { linked[index(i)] = w.link(files[index(i)], 1, "g" + std::to_string(i)).ok(); });
  for (int i = 0; i < kRounds; ++i) {
    EXPECT_EQ(v.lookup(1, "g" + std::to_string(i)).ok(), linked[index(i)] != 0);
    EXPECT_EQ(v.attributes(files[index(i)])->nlink(), linked[index(i)] ? 1u : 0u);
  }
}

TEST_F(Safety, CreatesInOneDirectoryDoNotDisturbEachOther) {
  constexpr int kThreads = 4;
  constexpr int kFiles = 300;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kFiles; ++i) {
        EXPECT_TRUE(v.create(1, std::to_string(t) + "." + std::to_string(i)).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(v.attributes(1)->entries(), static_cast<std::uint64_t>(kThreads * kFiles));
  EXPECT_EQ(v.total(What::inodes), 1 + kThreads * kFiles);
  EXPECT_EQ(v.rows(Table::entry).size(), static_cast<std::size_t>(kThreads * kFiles));
}

}  // namespace
}  // namespace starlane::meta
