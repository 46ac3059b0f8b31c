#include "keeper/keeper.h"

#include <algorithm>

#include "keeper/fixture.h"

namespace starlane::keeper {
namespace {

std::string pattern(std::uint64_t seed, std::size_t length) {
  Rng rng(seed);
  std::string bytes(length, '\0');
  for (char& c : bytes) c = static_cast<char>(rng.next());
  return bytes;
}

class KeeperTest : public ::testing::Test {
 protected:
  /// Runs until nothing is left to do.
  void run_all(Keeper& one) {
    for (int i = 0; i < 100; ++i) {
      const auto more = one.run_once();
      ASSERT_TRUE(more.ok()) << more.status().to_string();
      if (!*more) return;
    }
  }
  Options options() {
    Options options;
    options.remove_threads = 2;
    return options;
  }

  KeptSite kept;
  Keeper keeper{kept.site.server, kept.blocks, kept.site.clock, options()};
};

TEST_F(KeeperTest, RemovesTheBlocksOfWhatWasOverwritten) {
  const std::uint64_t inode = kept.user.create(1, "f").value();
  ASSERT_TRUE(kept.write(inode, 0, pattern(1, 5'000'000)).ok());
  const std::string now = pattern(2, 5'000'000);
  ASSERT_TRUE(kept.write(inode, 0, now).ok());
  EXPECT_EQ(kept.blocks.blocks().size(), 4u);
  run_all(keeper);
  EXPECT_EQ(kept.blocks.blocks().size(), 2u);
  EXPECT_EQ(keeper.figures().removed_slices, 1u);
  EXPECT_EQ(kept.read(inode, 5'000'000), now);
  EXPECT_TRUE(kept.check().clean());
}

TEST_F(KeeperTest, RemovesWhatADeadSessionPutAndNeverCommitted) {
  const auto reserved = kept.user.reserve(2);
  ASSERT_TRUE(kept.put(reserved->first(), "abc").ok());
  EXPECT_TRUE(kept.check().clean()) << "blocks of a live reservation are no orphans";
  ASSERT_TRUE(kept.site.close_session(kept.user.session).ok());
  run_all(keeper);
  EXPECT_TRUE(kept.blocks.blocks().empty());
  EXPECT_EQ(keeper.figures().orphan_slices, 2u);
  EXPECT_EQ(kept.put(reserved->first() + 1, "late").code(), Errc::fenced)
      << "a late put is refused";
  EXPECT_TRUE(kept.check().clean());
}

TEST_F(KeeperTest, LeavesWhatItCannotReachForLater) {
  const std::uint64_t inode = kept.user.create(1, "f").value();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(kept.write(inode, 0, "x").ok());
  kept.blocks.set_away(2, true);
  const auto failed = keeper.run_once();
  EXPECT_EQ(failed.code(), Errc::unavailable);
  EXPECT_FALSE(keeper.figures().last_failure.empty());
  kept.blocks.set_away(2, false);
  run_all(keeper);
  EXPECT_EQ(kept.blocks.blocks().size(), 1u);
  EXPECT_TRUE(keeper.figures().last_failure.empty());
  EXPECT_TRUE(kept.check().clean());
}

TEST_F(KeeperTest, MergesLongListsWithoutChangingAByte) {
  const std::uint64_t inode = kept.user.create(1, "f").value();
  std::string model(9'000'000, '\0');
  Rng rng(3);
  for (std::uint64_t i = 0; i < 60; ++i) {
    const std::string bytes = pattern(100 + i, 1 + rng.below(300'000));
    const std::uint64_t offset = rng.below(model.size() - bytes.size());
    ASSERT_TRUE(kept.write(inode, offset, bytes).ok());
    model.replace(offset, bytes.size(), bytes);
  }
  const auto before = kept.user.attributes(inode);
  ASSERT_GT(kept.list_length(inode), 20u);
  run_all(keeper);
  EXPECT_LE(kept.list_length(inode), 60u);
  EXPECT_EQ(keeper.figures().merged_chunks, 1u);
  EXPECT_EQ(kept.read(inode, 9'000'000), model);
  EXPECT_EQ(kept.user.attributes(inode)->version(), before->version());
  EXPECT_EQ(kept.user.attributes(inode)->bytes(), before->bytes());
  EXPECT_TRUE(kept.check().clean());
}

TEST_F(KeeperTest, GivesBackWhatAHoleInAFileFreed) {
  const std::uint64_t inode = kept.user.create(1, "f").value();
  const std::uint64_t copy = kept.user.create(1, "copy").value();
  const std::string bytes = pattern(9, 5 * kBlockSize);
  ASSERT_TRUE(kept.write(inode, 0, bytes).ok());
  pb::CopyRangeRequest part;
  kept.user.fill(part.mutable_on());
  part.set_inode(copy);
  part.set_source_branch(kept.user.branch.value);
  part.set_source_inode(inode);
  part.set_length(kBlockSize / 2);
  ASSERT_TRUE(kept.site.ask(&MetaService::copy_range, part).ok());
  pb::FallocateRequest punch;
  kept.user.fill(punch.mutable_on());
  punch.set_inode(inode);
  punch.set_mode(3);
  punch.set_offset(100);
  punch.set_length(4 * kBlockSize);
  ASSERT_TRUE(kept.site.ask(&MetaService::fallocate, punch).ok());
  run_all(keeper);
  EXPECT_EQ(kept.blocks.blocks().size(), 5u) << "the copy refers to the slice as well";

  ASSERT_TRUE(kept.user.unlink(1, "copy").ok());
  for (int i = 0; i < 4; ++i) {
    kept.site.clock.advance(kept.site.heartbeat);
    ASSERT_TRUE(kept.user.beat().ok());
    run_all(keeper);
  }
  punch.set_length(4 * kBlockSize + 1);  // what is said again is looked at again
  ASSERT_TRUE(kept.site.ask(&MetaService::fallocate, punch).ok());
  for (int i = 0; i < 2; ++i) run_all(keeper);  // what a merge freed goes in the next round
  EXPECT_LE(kept.blocks.blocks().size(), 2u);
  std::string model = bytes;
  std::fill_n(model.begin() + 100, 4 * kBlockSize + 1, '\0');
  EXPECT_EQ(kept.read(inode, 5 * kBlockSize), model);
  EXPECT_TRUE(kept.check().clean());
}

TEST_F(KeeperTest, SyncsWhatReplacedABlockBeforeItRemovesIt) {
  const std::uint64_t inode = kept.user.create(1, "f").value();
  for (std::uint64_t i = 0; i < 12; ++i) ASSERT_TRUE(kept.write(inode, 0, pattern(i, 70'000)).ok());
  for (std::uint64_t i = 0; i < 40; ++i)
    ASSERT_TRUE(kept.write(inode, 100'000 + 50'000 * i, pattern(i, 60'000)).ok());
  run_all(keeper);
  EXPECT_GT(keeper.figures().removed_slices, 10U);
  EXPECT_EQ(keeper.figures().merged_chunks, 1U);
  EXPECT_FALSE(kept.blocks.removed_while_unsynced());
}

TEST_F(KeeperTest, DoesNotMakeContentOfBytesThatWereDamagedOnTheirWay) {
  const std::uint64_t inode = kept.user.create(1, "f").value();
  for (std::uint64_t i = 0; i < 40; ++i)
    ASSERT_TRUE(kept.write(inode, 50'000 * i, pattern(i, 60'000)).ok());
  const std::string model = kept.read(inode, 2'100'000);
  kept.blocks.garble_next_reads();
  EXPECT_FALSE(keeper.run_once().ok());
  EXPECT_EQ(keeper.figures().merged_chunks, 0U);
  for (int i = 0; i < 50 && keeper.figures().merged_chunks == 0; ++i) (void)keeper.run_once();
  EXPECT_EQ(keeper.figures().merged_chunks, 1U);
  EXPECT_EQ(kept.read(inode, 2'100'000), model);
}

TEST_F(KeeperTest, GivesBackWhatAMergeThatFailedHadReserved) {
  const std::uint64_t inode = kept.user.create(1, "f").value();
  for (std::uint64_t i = 0; i < 20; ++i)
    ASSERT_TRUE(kept.write(inode, i * 10, pattern(i, 10)).ok());
  const std::string model = kept.read(inode, 200);
  bool failed = false;
  for (std::uint64_t seed = 1; seed < 200 && keeper.figures().merged_chunks == 0; ++seed) {
    kept.blocks.fail_one_in(3 + static_cast<unsigned>(seed) / 4, seed);
    failed = !keeper.run_once().ok() || failed;
  }
  kept.blocks.fail_one_in(0, 1);
  ASSERT_TRUE(failed);
  run_all(keeper);
  keeper.stop();
  Keeper next(kept.site.server, kept.blocks, kept.site.clock, options());
  run_all(next);
  run_all(next);
  EXPECT_EQ(kept.read(inode, 200), model);
  EXPECT_EQ(kept.blocks.blocks().size(), kept.list_length(inode))
      << "nothing of the failed attempts is left";
  EXPECT_TRUE(kept.check().clean());
}

TEST_F(KeeperTest, OpensAnotherSessionWhenItsOwnWasEnded) {
  run_all(keeper);
  const auto sessions = kept.site.ask(&MetaService::list_sessions, pb::Empty());
  for (const auto& session : sessions->sessions()) {
    if (session.purpose() == "keeper") {
      ASSERT_TRUE(kept.site.close_session(SessionId(session.session())).ok());
    }
  }
  kept.site.clock.advance(kept.site.heartbeat);
  run_all(keeper);
  EXPECT_EQ(keeper.figures().failed_runs, 0u);
}

TEST_F(KeeperTest, RunsOnItsThreadAndStops) {
  const std::uint64_t inode = kept.user.create(1, "f").value();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(kept.write(inode, 0, "x").ok());
  keeper.start();
  for (int i = 0; i < 1000 && kept.blocks.blocks().size() > 1; ++i) {
    std::this_thread::sleep_for(Milliseconds(5));
  }
  keeper.stop();
  keeper.stop();
  EXPECT_EQ(kept.blocks.blocks().size(), 1u);
  EXPECT_EQ(kept.site.system_rows(meta::Table::session).size(), 1u)
      << "its own session ended with it";
}

// Targets and engine fail at random while files are written, copied and unlinked, and a keeper now
// and then is replaced by another. Nothing that a file refers to may be missing, at any time; at
// the end nothing else is left.
TEST_F(KeeperTest, AtRandomLosesNothingAndLeavesNothing) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed);
  auto worker = std::make_unique<Keeper>(kept.site.server, kept.blocks, kept.site.clock, options());
  std::vector<std::uint64_t> files;
  for (int i = 0; i < 4; ++i) files.push_back(kept.user.create(1, "f" + std::to_string(i)).value());
  std::map<std::uint64_t, std::string> model;
  for (const std::uint64_t file : files) model[file] = std::string(2000, '\0');
  kept.site.engine.set_faults({.seed = seed, .conflict_one_in = 25});
  for (int step = 0; step < 400; ++step) {
    const std::uint64_t file = files[rng.below(files.size())];
    if (rng.one_in(5)) {
      kept.blocks.fail_one_in(7, seed + step);
      static_cast<void>(worker->run_once().ok());
      kept.blocks.fail_one_in(0, 1);
      kept.site.clock.advance(Milliseconds(500));
      ASSERT_TRUE(kept.user.beat().ok());
      if (rng.one_in(4))
        worker =
            std::make_unique<Keeper>(kept.site.server, kept.blocks, kept.site.clock, options());
    } else if (rng.one_in(6)) {
      const std::uint64_t from = files[rng.below(files.size())];
      const std::uint64_t length = kept.user.attributes(from)->length();
      if (from == file || length == 0) continue;
      ASSERT_TRUE(kept.user.copy(kept.user.branch, from, file, length).ok());
      model[file].replace(0, length, model[from].substr(0, length));
    } else {
      const std::string bytes = pattern(seed + step, 1 + rng.below(200));
      const std::uint64_t offset = rng.below(2000 - bytes.size());
      ASSERT_TRUE(kept.write(file, offset, bytes).ok());
      model[file].replace(offset, bytes.size(), bytes);
    }
    if (step % 20 == 0) {
      for (const auto& [inode, bytes] : model)
        ASSERT_EQ(kept.read(inode, 2000), bytes) << "step " << step;
    }
  }
  kept.site.engine.set_faults({});
  worker.reset();
  run_all(keeper);
  run_all(keeper);
  EXPECT_TRUE(kept.check().clean());
  for (const auto& [inode, bytes] : model) EXPECT_EQ(kept.read(inode, 2000), bytes);
  ASSERT_TRUE(kept.site.delete_volume("v", true).ok());
  ASSERT_TRUE(kept.site.close_session(kept.user.session).ok());
  for (int i = 0; i < 4; ++i) run_all(keeper);
  EXPECT_TRUE(kept.blocks.blocks().empty());
}

}  // namespace
}  // namespace starlane::keeper
