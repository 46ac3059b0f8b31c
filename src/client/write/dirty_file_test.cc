// Extents over each other, step by step: what may grow, what a freeze takes, what a cut leaves.
#include "client/write/dirty_file.h"

#include <gtest/gtest.h>

#include "client/write/replay.h"
#include "common/rng.h"

namespace starlane::client {
namespace {

class Dirty : public ::testing::Test {
 protected:
  Dirty()
      : fd_(std::move(Arena::create(16_MiB)).value()),
        arena_(std::move(Arena::open(fd_.get())).value()),
        file_({BranchId(1), InodeId(2)}, arena_) {}

  DirtyFile::Room room(std::uint64_t offset, std::uint64_t length) {
    MutexLock lock(file_.m);
    std::uint64_t wanted = 0;
    auto room = file_.claim(offset, length, &wanted);
    if (!room.grows) room = {nullptr, arena_->try_take(wanted), 0, length};
    return room;
  }
  void fill(const DirtyFile::Room& room, char letter) {
    std::memset(room.memory->data() + room.memory_offset, letter, room.length);
  }
  bool publish(const DirtyFile::Room& room, std::uint64_t offset, bool with_record) {
    MutexLock lock(file_.m);
    std::optional<std::uint32_t> record;
    if (with_record) record = arena_->try_take_record();
    const bool published = file_.publish(room, offset, record, 0);
    if (record) arena_->give_record(*record);
    return published;
  }
  void write(std::uint64_t offset, std::uint64_t length, char letter) {
    const auto here = room(offset, length);
    ASSERT_EQ(here.length, length);
    fill(here, letter);
    ASSERT_TRUE(publish(here, offset, true));
  }
  std::string shown() {
    MutexLock lock(file_.m);
    std::string text(file_.parts.end(), '.');
    file_.parts.visit(
        0, text.size(), [&](std::uint64_t begin, std::uint64_t end, const DirtyPart& part) {
          std::memcpy(text.data() + begin, part.extent->data() + part.from, end - begin);
        });
    return text;
  }
  std::string replayed() {
    std::string text;
    const auto done = replay_arena(fd_.get(), [&](const ReplayedExtent& extent) {
      text.resize(std::max<std::size_t>(text.size(), extent.offset + extent.bytes.size()), '.');
      text.replace(extent.offset, extent.bytes.size(), text_of(extent.bytes));
      return Status();
    });
    EXPECT_TRUE(done.ok());
    return text;
  }
  std::vector<PutJob> freeze_all() {
    MutexLock lock(file_.m);
    std::vector<PutJob> jobs;
    file_.freeze_all(jobs);
    return jobs;
  }

  void freeze(std::uint64_t begin, std::uint64_t end) {
    MutexLock lock(file_.m);
    std::vector<PutJob> jobs;
    file_.freeze(begin, end, false, jobs);
  }

  UniqueFd fd_;
  std::shared_ptr<Arena> arena_;
  DirtyFile file_;
};

TEST_F(Dirty, AReplayShowsWhatTheFileShows) {
  const std::uint64_t seed = random_seed();
  std::printf("seed %lu\n", seed);
  Rng rng(seed);
  for (int i = 0; i < 400; ++i) {
    const std::uint64_t end = shown().size();
    if (rng.one_in(20)) {
      MutexLock lock(file_.m);
      std::vector<std::shared_ptr<PendingSlice>> unused;
      file_.cut(rng.below(end + 1), unused);
    } else if (rng.one_in(10)) {
      freeze_all();
    } else {
      write(rng.one_in(2) ? end : rng.below(end + 10), 1 + rng.below(50),
            static_cast<char>('a' + i % 26));
    }
    ASSERT_EQ(replayed(), shown()) << "seed " << seed << " step " << i;
  }
}

TEST_F(Dirty, AnExtentDoesNotGrowOverWhatCameMeanwhile) {
  write(0, 100, 'a');
  const auto grows = room(100, 100);
  ASSERT_TRUE(grows.grows);
  fill(grows, 'b');
  write(150, 100, 'c');  // another writer, while the first one copies
  EXPECT_FALSE(publish(grows, 100, false));
  ASSERT_TRUE(publish(grows, 100, true));
  EXPECT_EQ(shown(), std::string(100, 'a') + std::string(100, 'b') + std::string(50, 'c'));
  EXPECT_EQ(replayed(), shown());
}

TEST_F(Dirty, WhatIsFrozenDoesNotGrow) {
  write(0, 100, 'a');
  const auto grows = room(100, 100);
  fill(grows, 'b');
  EXPECT_EQ(freeze_all().size(), 1u);
  EXPECT_FALSE(publish(grows, 100, false));
  ASSERT_TRUE(publish(grows, 100, true));
  EXPECT_EQ(shown(), std::string(100, 'a') + std::string(100, 'b'));
}

TEST_F(Dirty, SlicesKeepTheOrderOfWhatTheyShow) {
  write(0, kBlockSize, 'a');
  freeze(0, kBlockSize);
  write(kBlockSize + 5, 10, 'b');
  freeze(kBlockSize, 2 * kBlockSize);
  write(kBlockSize, kBlockSize, 'c');
  freeze(kBlockSize, 2 * kBlockSize);  // may not join the first one, which comes before 'b'
  MutexLock lock(file_.m);
  ASSERT_EQ(file_.slices.size(), 3u);
  EXPECT_EQ(file_.slices[0]->stored, kBlockSize);
  EXPECT_EQ(file_.slices[1]->begin, kBlockSize + 5);
  EXPECT_EQ(file_.slices[2]->begin, kBlockSize);
}

TEST_F(Dirty, BlocksInARowAreOneSlice) {
  write(0, kBlockSize, 'a');
  freeze(0, kBlockSize);
  write(kBlockSize, kBlockSize, 'b');
  freeze(kBlockSize, 2 * kBlockSize);
  write(2 * kBlockSize, 10, 'c');
  const auto jobs = freeze_all();
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0].index, 2u);
  MutexLock lock(file_.m);
  ASSERT_EQ(file_.slices.size(), 1u);
  EXPECT_EQ(file_.slices[0]->length, 2 * kBlockSize + 10);
  EXPECT_TRUE(file_.slices[0]->closed);
}

}  // namespace
}  // namespace starlane::client
