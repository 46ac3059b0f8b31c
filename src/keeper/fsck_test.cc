#include "keeper/fsck.h"

#include <gmock/gmock.h>

#include "keeper/fixture.h"
#include "meta/members/flush_marks.h"

namespace starlane::keeper {
namespace {

class FsckTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 20; ++i) {
      const std::uint64_t inode = kept.user.create(1, "f" + std::to_string(i)).value();
      slices.push_back(kept.write(inode, 0, std::string(3'000 + i, 'x')).value());
      inodes.push_back(inode);
    }
    big = kept.write(inodes[0], kChunkSize, std::string(9'000'000, 'y')).value();
    ASSERT_TRUE(kept.check().clean());
  }
  BlockId block(std::uint64_t slice, std::uint32_t index = 0) {
    return {kept.user.branch, SliceId(slice), index};
  }
  /// Exactly one problem, of this kind.
  void expect_one(FsckProblem::Kind kind, const FsckOptions& options = {}) {
    const FsckReport report = kept.check(options);
    EXPECT_FALSE(report.clean());
    ASSERT_EQ(kept.problems.size(), 1u);
    EXPECT_EQ(name_of(kept.problems[0].kind), name_of(kind)) << kept.problems[0].text;
  }

  KeptSite kept;
  std::vector<std::uint64_t> slices;
  std::vector<std::uint64_t> inodes;
  std::uint64_t big = 0;
};

TEST_F(FsckTest, CountsWhatItChecked) {
  const FsckReport report = kept.check();
  EXPECT_EQ(report.inodes, 21u);
  EXPECT_EQ(report.entries, 20u);
  EXPECT_EQ(report.live, 21u);
  EXPECT_EQ(report.targets, 2u);
  EXPECT_EQ(report.blocks, 23u);
}

TEST_F(FsckTest, FindsAMissingBlockAndSaysWhoseItIs) {
  kept.blocks.lose(block(big, 1));
  expect_one(FsckProblem::Kind::missing);
  EXPECT_EQ(kept.problems[0].file.inode.value, inodes[0]);
  EXPECT_EQ(kept.problems[0].chunk, 1u);
  EXPECT_EQ(kept.problems[0].block, block(big, 1));
}

TEST_F(FsckTest, ABlockThatWasNeverSyncedBeforeACrashIsNoDamage) {
  meta::FlushMarks marks(kept.site.engine, kept.site.clock);
  ASSERT_TRUE(marks.begin().ok());
  kept.site.clock.advance(std::chrono::seconds(1));
  ASSERT_TRUE(marks.synced(meta::to_ns(kept.site.clock.wall())).ok());
  const std::uint64_t late = kept.write(inodes[5], 0, std::string(4'000, 'l')).value();
  ASSERT_TRUE(meta::FlushMarks(kept.site.engine, kept.site.clock).begin().ok());
  kept.blocks.lose(block(late));
  const FsckReport report = kept.check();
  EXPECT_TRUE(report.clean());
  EXPECT_EQ(report.unsynced, 1u);
  ASSERT_EQ(kept.problems.size(), 1u);
  EXPECT_EQ(kept.problems[0].kind, FsckProblem::Kind::unsynced);
  kept.blocks.lose(block(slices[3]));
  EXPECT_EQ(kept.check().missing, 1u) << "what was there long before the crash is damage";
}

TEST_F(FsckTest, FindsASliceThatIsCountedWrong) {
  kept.site.edit([&](kv::Transaction& t) -> Status {
    t.add(meta::count_key(SliceId(slices[4])), 1);
    return {};
  });
  expect_one(FsckProblem::Kind::rows);
  EXPECT_THAT(kept.problems[0].text, testing::HasSubstr("1 references but counts 2"));
}

TEST_F(FsckTest, SharedSlicesAreCountedRight) {
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t copy = kept.user.create(1, "copy" + std::to_string(i)).value();
    ASSERT_TRUE(kept.user.copy(kept.user.branch, inodes[4], copy, 3'000).ok());
  }
  EXPECT_TRUE(kept.check().clean());
  ASSERT_TRUE(kept.user.unlink(1, "copy0").ok());
  EXPECT_TRUE(kept.check().clean());
  kept.site.edit([&](kv::Transaction& t) -> Status {
    t.add(meta::count_key(SliceId(slices[4])), -1);
    return {};
  });
  expect_one(FsckProblem::Kind::rows);
}

TEST_F(FsckTest, FindsABlockThatNothingRefersTo) {
  kept.blocks.plant(1, block(999'999), 100);
  expect_one(FsckProblem::Kind::orphan);
}

TEST_F(FsckTest, FindsABlockOfTheWrongLength) {
  kept.blocks.lose(block(slices[3]));
  kept.blocks.plant(2, block(slices[3]), 17);
  expect_one(FsckProblem::Kind::wrong);
}

TEST_F(FsckTest, FindsABlockThatNoSliceCanHave) {
  kept.blocks.plant(1, block(slices[3], 99), 17);
  expect_one(FsckProblem::Kind::wrong);
}

TEST_F(FsckTest, FindsDamagedBytesWhenAsked) {
  kept.blocks.damage(block(slices[5]));
  EXPECT_TRUE(kept.check().clean()) << "without reading everything it cannot know";
  FsckOptions options;
  options.verify_blocks = true;
  expect_one(FsckProblem::Kind::corrupt, options);
}

TEST_F(FsckTest, FindsRowsThatContradictEachOther) {
  kept.site.edit([&](kv::Transaction& t) -> Status {
    t.add(meta::accumulator_key(kept.user.branch, InodeId{}, meta::What::bytes), 1);
    return {};
  });
  expect_one(FsckProblem::Kind::rows);
}

TEST_F(FsckTest, FindsTheSameInManyPasses) {
  kept.blocks.lose(block(slices[2]));
  kept.blocks.plant(1, block(999'999), 100);
  kept.blocks.plant(1, block(slices[3], 99), 17);
  FsckOptions options;
  options.slices_in_memory = 2;
  options.page = 3;
  const FsckReport report = kept.check(options);
  EXPECT_EQ(report.missing, 1u);
  EXPECT_EQ(report.orphans, 1u);
  EXPECT_EQ(report.wrong, 1u);
  EXPECT_EQ(kept.problems.size(), 3u);
  EXPECT_EQ(report.live, 21u) << "counted once, however many passes";
  EXPECT_EQ(report.blocks, 24u);
}

TEST_F(FsckTest, DeadAndReservedSlicesAreNoProblem) {
  ASSERT_TRUE(kept.write(inodes[1], 0, std::string(4000, 'z')).ok());
  kept.blocks.lose(block(slices[1]));  // Half removed.
  const auto reserved = kept.user.reserve(2);
  ASSERT_TRUE(kept.put(reserved->first(), "abc").ok());
  const FsckReport report = kept.check();
  EXPECT_TRUE(report.clean());
  EXPECT_EQ(report.dead, 1u);
  EXPECT_EQ(report.reserved, 2u);
}

TEST_F(FsckTest, CannotFinishWithoutATarget) {
  kept.blocks.set_away(2, true);
  const auto report = fsck(kept.site.server, kept.blocks, {}, {}, [](const FsckProblem&) {});
  EXPECT_EQ(report.code(), Errc::unavailable);
}

/// A file is written and another removed between the two halves of a check.
class Meddler final : public BlockService {
 public:
  Meddler(KeptSite& kept, std::function<void()> meddle) : kept_(kept), meddle_(std::move(meddle)) {}
  Status put(const Call& c, const PutBlock& r, BulkSource& d) override {
    return kept_.blocks.put(c, r, d);
  }
  Result<GetBlockReply> get(const Call& c, const GetBlock& r, BulkSink& o) override {
    return kept_.blocks.get(c, r, o);
  }
  Status sync(const Call& c, TargetId t) override { return kept_.blocks.sync(c, t); }
  Status remove_slice(const Call& c, TargetId t, BranchId o, SliceId s) override {
    return kept_.blocks.remove_slice(c, t, o, s);
  }
  Result<BlockListing> list(const Call& c, TargetId t, const std::string& cursor,
                            std::uint32_t limit) override {
    auto listing = kept_.blocks.list(c, t, cursor, limit);
    if (t == TargetId(2) && meddle_) std::exchange(meddle_, nullptr)();
    return listing;
  }
  Result<BlockListing> verify(const Call& c, TargetId t, const std::string& cursor,
                              std::uint32_t limit) override {
    return kept_.blocks.verify(c, t, cursor, limit);
  }
  Result<std::vector<TargetInfo>> targets(const Call& c) override {
    return kept_.blocks.targets(c);
  }

 private:
  KeptSite& kept_;
  std::function<void()> meddle_;
};

TEST_F(FsckTest, UseWhileItRunsIsNoProblem) {
  Keeper keeper(kept.site.server, kept.blocks, kept.site.clock, {});
  Meddler meddler(kept, [&] {
    ASSERT_TRUE(kept.write(inodes[4], 0, std::string(5'000, 'n')).ok());
    ASSERT_TRUE(kept.user.unlink(1, "f7").ok());
    ASSERT_TRUE(keeper.run_once().ok());
  });
  std::vector<std::string> problems;
  const auto report = fsck(kept.site.server, meddler, {}, {},
                           [&](const FsckProblem& problem) { problems.push_back(problem.text); });
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(problems, std::vector<std::string>());
}

}  // namespace
}  // namespace starlane::keeper
