#include "keeper/scrubber.h"

#include <gtest/gtest.h>

#include "keeper/fixture.h"

namespace starlane::keeper {
namespace {

constexpr auto kWeek = std::chrono::hours(24 * 7);

class ScrubberTest : public testing::Test {
 protected:
  ScrubberTest() {
    for (std::uint64_t i = 0; i < 10; ++i) blocks.plant(1, block(i), 1000);
    for (std::uint64_t i = 0; i < 3; ++i) blocks.plant(2, block(100 + i), 500);
  }
  static BlockId block(std::uint64_t slice) { return {BranchId(1), SliceId(slice), 0}; }
  Scrubber make(std::uint64_t bytes_per_second) {
    ScrubOptions options;
    options.bytes_per_second = bytes_per_second;
    options.wanted_bytes_per_second = 1_MiB;
    return Scrubber(site.server, blocks, site.clock, options);
  }
  /// A second, and a step.
  Status step(Scrubber& scrubber) {
    site.clock.advance(std::chrono::seconds(1));
    return scrubber.step({}, {TargetId(1), TargetId(2)});
  }
  pb::ScrubState state(std::uint32_t target) {
    const pb::ScrubStates states = site.ask(&MetaService::scrub_states, pb::Empty()).value();
    for (const pb::ScrubState& state : states.targets())
      if (state.target() == target) return state;
    return {};
  }
  bool done(std::uint32_t target) {
    return state(target).has_finished() && state(target).finished().seconds() > 0 &&
           state(target).finished().seconds() >= state(target).started().seconds();
  }
  void want(std::uint32_t target) {
    pb::ScrubState wish;
    wish.set_target(target);
    wish.set_wanted(true);
    ASSERT_TRUE(site.ask(&MetaService::note_scrub, wish).ok());
  }

  meta::Site site;
  FakeBlocks blocks{{1, 2}};
};

TEST_F(ScrubberTest, ReadsNoFasterThanItMay) {
  Scrubber scrubber = make(2000);
  ASSERT_TRUE(step(scrubber).ok());
  EXPECT_EQ(state(1).blocks(), 2u);
  EXPECT_FALSE(done(1));
  ASSERT_TRUE(scrubber.step({}, {TargetId(1)}).ok());
  EXPECT_EQ(state(1).blocks(), 2u) << "no time has passed";
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(step(scrubber).ok());
  EXPECT_EQ(state(1).blocks(), 10u);
  EXPECT_EQ(state(1).bytes(), 10'000u);
  EXPECT_TRUE(done(1));
  EXPECT_TRUE(done(2));
  EXPECT_EQ(scrubber.figures().passes, 2u);
}

TEST_F(ScrubberTest, AnotherKeeperGoesOnWhereOneWasKilled) {
  Scrubber first = make(2000);
  ASSERT_TRUE(step(first).ok());
  ASSERT_TRUE(step(first).ok());
  Scrubber second = make(2000);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(step(second).ok());
  EXPECT_TRUE(done(1));
  EXPECT_EQ(state(1).blocks(), 10u);
  EXPECT_EQ(second.figures().blocks, 6u + 0u);
}

TEST_F(ScrubberTest, FindsDamageAndComesAgain) {
  blocks.damage(block(3));
  Scrubber scrubber = make(1_MiB);
  ASSERT_TRUE(step(scrubber).ok());
  EXPECT_EQ(state(1).damaged(), 1u);
  EXPECT_EQ(state(2).damaged(), 0u);
  ASSERT_TRUE(step(scrubber).ok());
  EXPECT_EQ(scrubber.figures().passes, 2u) << "nothing is due";
  blocks.damage(block(4));
  site.clock.advance(kWeek);
  ASSERT_TRUE(step(scrubber).ok());
  EXPECT_EQ(scrubber.figures().passes, 4u);
  EXPECT_EQ(state(1).damaged(), 2u);
}

TEST_F(ScrubberTest, APassIsMadeWhenOneIsWanted) {
  Scrubber scrubber = make(0);
  ASSERT_TRUE(step(scrubber).ok());
  EXPECT_EQ(scrubber.figures().blocks, 0u);
  want(2);
  ASSERT_TRUE(step(scrubber).ok());
  EXPECT_TRUE(done(2));
  EXPECT_FALSE(state(2).wanted());
  EXPECT_EQ(scrubber.figures().blocks, 3u);
}

TEST_F(ScrubberTest, AWishOutlivesAStepThatDidNotKnowOfIt) {
  Scrubber scrubber = make(1000);
  ASSERT_TRUE(step(scrubber).ok());
  want(1);
  EXPECT_EQ(state(1).blocks(), 1u) << "the wish changes nothing else";
  pb::ScrubState known = state(1);
  known.set_wanted(false);
  known.set_blocks(2);
  ASSERT_TRUE(site.ask(&MetaService::note_scrub, known).ok());
  EXPECT_TRUE(state(1).wanted());
}

TEST_F(ScrubberTest, ATargetThatIsAwayDoesNotHoldUpTheOthers) {
  blocks.set_away(1, true);
  Scrubber scrubber = make(1_MiB);
  EXPECT_EQ(step(scrubber).code(), Errc::unavailable);
  EXPECT_TRUE(done(2));
  EXPECT_FALSE(done(1));
  blocks.set_away(1, false);
  ASSERT_TRUE(step(scrubber).ok());
  EXPECT_TRUE(done(1));
}

}  // namespace
}  // namespace starlane::keeper
