#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "common/rng.h"
#include "placement/choose.h"
#include "placement/cluster_map.h"

namespace starlane {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Target target(std::uint32_t id, std::uint32_t weight, const std::string& domain,
              TargetState state = TargetState::up) {
  return {TargetId(id), weight, "endpoint" + std::to_string(id), state, domain};
}

ClusterMap map_of(std::vector<Target> targets) { return {1, std::move(targets)}; }

std::vector<TargetId> place(const ClusterMap& map, std::uint64_t slice, std::uint32_t index,
                            std::size_t copies) {
  return choose(map, BranchId(9), SliceId(slice), index, copies);
}

TEST(Distance, AgreesWithTheLogarithmOfTheLibrary) {
  Rng rng(1);
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t h = rng.next() >> rng.below(60);
    const double want = 64 - std::log2(static_cast<double>(h | 1));
    const double got = static_cast<double>(placement::distance(h)) / 281474976710656.0;
    ASSERT_NEAR(got, want, 1e-6) << h;
  }
}

TEST(Distance, NeverZeroAndFallsMonotonically) {
  EXPECT_GT(placement::distance(~0ULL), 0u);
  EXPECT_EQ(placement::distance(0), std::uint64_t{64} << 48);
  Rng rng(2);
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t a = rng.next(), b = a - rng.below(std::min<std::uint64_t>(a, 1 << 30) + 1);
    ASSERT_GE(placement::distance(b), placement::distance(a)) << a << " " << b;
  }
}

// A change here loses every block of every cluster: these numbers may never change. Computed by
// another program, in Python.
TEST(Placement, GoldenHashes) {
  const BlockId block{BranchId(1), SliceId(2), 3};
  EXPECT_EQ(placement::hash(block, TargetId(1)), 2659756731817901775u);
  EXPECT_EQ(placement::hash(block, TargetId(2)), 3109396497036701483u);
  EXPECT_EQ(placement::hash({BranchId(~0ULL), SliceId(~0ULL), ~0U}, TargetId(~0U)),
            15166573780183310761u);
  EXPECT_EQ(placement::distance(0x123456789abcdef0), 1073483983536334u);
  EXPECT_EQ(placement::distance(~0ULL), 47u);
}

TEST(Placement, GoldenChoices) {
  const auto map = map_of({target(1, 100, "a"), target(2, 200, "a"), target(3, 100, "b"),
                           target(4, 400, "c"), target(5, 50, "d")});
  std::vector<std::uint32_t> got;
  for (std::uint32_t index = 0; index < 6; ++index) {
    for (const TargetId id : place(map, 77, index, 3)) got.push_back(id.value);
  }
  EXPECT_THAT(got, ElementsAre(4, 2, 5, 1, 4, 3, 3, 4, 1, 4, 5, 3, 3, 2, 4, 2, 3, 4));
}

TEST(Placement, SharesFollowTheWeights) {
  const auto map =
      map_of({target(1, 100, "a"), target(2, 200, "b"), target(3, 300, "c"), target(4, 400, "d")});
  std::map<std::uint32_t, double> got;
  constexpr int kBlocks = 200'000;
  for (int i = 0; i < kBlocks; ++i) {
    got[place(map, 1000 + i / 16, i % 16, 1).front().value] += 1;
  }
  for (std::uint32_t id = 1; id <= 4; ++id) {
    EXPECT_NEAR(got[id] / kBlocks, id / 10.0, 0.004) << id;  // 4 standard deviations
  }
}

TEST(Placement, CopiesLieInDifferentDomainsThenShareEvenly) {
  const auto map = map_of({target(1, 9, "a"), target(2, 9, "a"), target(3, 9, "a"),
                           target(4, 1, "b"), target(5, 1, "b"), target(6, 1, "c")});
  for (std::uint64_t slice = 1; slice < 2000; ++slice) {
    std::map<std::string, int> domains;
    for (const TargetId id : place(map, slice, 0, 3)) ++domains[map.find(id)->failure_domain];
    ASSERT_EQ(domains.size(), 3u);
    const auto five = place(map, slice, 0, 5);
    ASSERT_EQ(std::set<TargetId>(five.begin(), five.end()).size(), 5u);
    domains.clear();
    for (const TargetId id : five) ++domains[map.find(id)->failure_domain];
    ASSERT_EQ(domains["a"], 2);
    ASSERT_EQ(domains["b"], 2);
  }
}

TEST(Placement, FewerCopiesAreABeginningOfMore) {
  const auto map = map_of({target(1, 5, "a"), target(2, 5, "a"), target(3, 7, "b"),
                           target(4, 7, "b"), target(5, 1, "c")});
  for (std::uint64_t slice = 1; slice < 500; ++slice) {
    const auto all = place(map, slice, 3, 5);
    for (std::size_t n = 0; n <= 5; ++n) {
      const auto some = place(map, slice, 3, n);
      ASSERT_TRUE(std::equal(some.begin(), some.end(), all.begin()));
    }
  }
}

TEST(Placement, ANewTargetTakesAndNothingElseMoves) {
  auto before =
      map_of({target(1, 5, "a"), target(2, 5, "b"), target(4, 5, "c"), target(5, 5, "d")});
  auto after = before;
  after.targets.insert(after.targets.begin() + 2, target(3, 5, "b"));
  int moved = 0;
  constexpr int kBlocks = 20'000;
  for (std::uint64_t slice = 1; slice <= kBlocks; ++slice) {
    const auto old_place = place(before, slice, 0, 2), new_place = place(after, slice, 0, 2);
    if (old_place == new_place) continue;
    ++moved;
    ASSERT_TRUE(std::ranges::count(new_place, TargetId(3)) == 1);
  }
  EXPECT_GT(moved, kBlocks / 4);
  EXPECT_LT(moved, kBlocks / 2);
}

TEST(Placement, DownKeepsItsPlaceDrainingAndWeightlessGetNothing) {
  auto map = map_of({target(1, 5, "a"), target(2, 5, "b"), target(3, 0, "c")});
  const auto both = place(map, 8, 0, 3);
  EXPECT_EQ(both.size(), 2u);
  map.targets[0].state = TargetState::down;
  EXPECT_EQ(place(map, 8, 0, 3), both);
  map.targets[0].state = TargetState::draining;
  EXPECT_THAT(place(map, 8, 0, 3), ElementsAre(TargetId(2)));
  EXPECT_THAT(place(map_of({}), 8, 0, 3), IsEmpty());
  EXPECT_THAT(place(map, 8, 0, 0), IsEmpty());
}

TEST(Placement, ExtremeWeightsDoNotOverflow) {
  const auto map = map_of({target(1, 1, "a"), target(2, ~0U, "b")});
  int light = 0;
  for (std::uint64_t slice = 1; slice <= 10'000; ++slice) {
    light += place(map, slice, 0, 1).front() == TargetId(1);
  }
  EXPECT_EQ(light, 0);  // one in 4 billion
}

TEST(ClusterMap, ValidateRefusesWhatCannotBe) {
  EXPECT_TRUE(validate(map_of({target(1, 1, "a"), target(2, 1, "a")})).ok());
  EXPECT_TRUE(validate(map_of({})).ok());
  EXPECT_EQ(validate(map_of({target(0, 1, "a")})).code(), Errc::invalid);
  EXPECT_EQ(validate(map_of({target(2, 1, "a"), target(1, 1, "a")})).code(), Errc::invalid);
  EXPECT_EQ(validate(map_of({target(2, 1, "a"), target(2, 1, "a")})).code(), Errc::invalid);
  EXPECT_EQ(validate(map_of({target(2, 1, "a", TargetState(7))})).code(), Errc::invalid);
}

TEST(ClusterMap, FindsById) {
  const auto map = map_of({target(2, 1, "a"), target(5, 1, "b")});
  EXPECT_EQ(map.find(TargetId(5)), &map.targets[1]);
  EXPECT_EQ(map.find(TargetId(3)), nullptr);
  EXPECT_EQ(map.find(TargetId(6)), nullptr);
}

}  // namespace
}  // namespace starlane
