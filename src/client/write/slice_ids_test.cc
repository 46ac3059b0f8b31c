#include "client/write/slice_ids.h"

#include <set>
#include <thread>
#include <vector>

#include "client/write/rig.h"

namespace starlane::client {
namespace {

const BranchId kBranch{7};

class SliceIdsTest : public testing::Test {
 protected:
  Attachment attachment() { return rig.attachments.attachment(kBranch, 0).value(); }
  /// Takes `count`, each with its own reservation, and none twice.
  void take(SliceIds& ids, int count) {
    const Interrupts::Scope scope(interrupts, 0);
    for (int i = 0; i < count; ++i) {
      const auto reserved = ids.take(kBranch, attachment(), scope);
      ASSERT_TRUE(reserved.ok()) << reserved.status().to_string();
      EXPECT_GE(reserved->slice.value, reserved->batch);
      EXPECT_LT(reserved->slice.value, reserved->batch + 64);
      MutexLock lock(m);
      EXPECT_TRUE(taken.insert(reserved->slice).second) << "twice";
    }
  }

  Rig rig;
  Interrupts interrupts;
  Mutex m;
  std::set<SliceId> taken;
};

TEST_F(SliceIdsTest, WithoutAnotherThreadEveryReservationIsWaitedFor) {
  int refused = 0;
  SliceIds ids(rig.meta, [&](auto) { return ++refused == 0; });
  take(ids, 200);
  EXPECT_GE(refused, 3);
}

TEST_F(SliceIdsTest, TheNextReservationIsAskedForAhead) {
  std::vector<std::function<void(const Interrupts::Scope&)>> works;
  SliceIds ids(rig.meta, [&](auto work) {
    works.push_back(std::move(work));
    return true;
  });
  take(ids, 31);
  EXPECT_EQ(works.size(), 0u) << "one that is little used needs no second";
  take(ids, 20);
  ASSERT_EQ(works.size(), 1u) << "asked once";
  const Interrupts::Scope scope(interrupts, 0);
  works[0](scope);
  take(ids, 64 + 31 - 51);  // what is left of the first, and of the second what asks for no third
  EXPECT_EQ(works.size(), 1u);
  SliceIds others(rig.meta, [](auto) { return false; });
  const auto next = others.take(kBranch, attachment(), scope);
  EXPECT_EQ(next->batch, taken.begin()->value + 128) << "nobody had to wait for one";
}

TEST_F(SliceIdsTest, NobodyWaitsForWorkThatHasNotBegun) {
  // As when all threads that could do it are here, taking.
  std::vector<std::function<void(const Interrupts::Scope&)>> works;
  SliceIds ids(rig.meta, [&](auto work) {
    works.push_back(std::move(work));
    return true;
  });
  take(ids, 200);
  const Interrupts::Scope scope(interrupts, 0);
  for (const auto& work : works) work(scope);  // late: what it brings, or finds there, is good
  take(ids, 200);
}

TEST_F(SliceIdsTest, ManyThreadsNeverGetOneTwice) {
  std::vector<std::thread> works;
  SliceIds ids(rig.meta, [&](auto work) {
    MutexLock lock(m);
    works.emplace_back([this, work] {
      const Interrupts::Scope scope(interrupts, 0);
      work(scope);
    });
    return true;
  });
  std::vector<std::thread> takers;
  for (int t = 0; t < 4; ++t) takers.emplace_back([&] { take(ids, 500); });
  for (std::thread& taker : takers) taker.join();
  for (std::thread& work : works) work.join();
  EXPECT_EQ(taken.size(), 2000u);
}

}  // namespace
}  // namespace starlane::client
