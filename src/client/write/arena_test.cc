// The arena's layout, byte by byte, and what a replay refuses.
#include <gtest/gtest.h>
#include <unistd.h>

#include "client/write/arena.h"
#include "client/write/replay.h"
#include "common/hex.h"

namespace starlane::client {
namespace {

TEST(ArenaFormat, GoldenBytes) {
  ArenaHeader header;
  header.records = 0x0102;
  header.data_offset = 0x0304;
  header.data_bytes = 0x0506;
  EXPECT_EQ(hex_of(header),
            "53544c4e45524131"
            "01000000"
            "40000000"
            "0201000000000000"
            "0403000000000000"
            "0605000000000000"
            "000000000000000000000000000000000000000000000000");
  const ArenaRecord record{ArenaRecord::kLive, ArenaRecord::kKillPrivileges, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(hex_of(record),
            "01000000"
            "01000000"
            "0100000000000000"
            "0200000000000000"
            "0300000000000000"
            "0400000000000000"
            "0500000000000000"
            "0600000000000000"
            "0700000000000000");
}

class Replay : public ::testing::Test {
 protected:
  Replay()
      : fd_(std::move(Arena::create(8_MiB)).value()),
        arena_(std::move(Arena::open(fd_.get())).value()) {}

  void record(std::uint64_t offset, std::string_view text) {
    const auto memory = arena_->try_take(text.size());
    kept_.push_back(memory);
    std::memcpy(memory->data(), text.data(), text.size());
    arena_->write_record(*arena_->try_take_record(),
                         {ArenaRecord::kLive, 0, 7, 8, offset, text.size(), memory->offset(),
                          arena_->next_sequence(), 0});
  }
  Result<Replayed> replay() {
    return replay_arena(fd_.get(), [this](const ReplayedExtent& extent) {
      seen_ += std::to_string(extent.offset) + "=" + std::string(text_of(extent.bytes)) + " ";
      return Status();
    });
  }
  UniqueFd fd_;
  std::shared_ptr<Arena> arena_;
  std::vector<std::shared_ptr<Arena::Memory>> kept_;
  std::string seen_;
};

TEST_F(Replay, GivesLiveExtentsInTheOrderOfTheWrites) {
  const auto first = arena_->try_take_record();
  record(10, "one");
  record(5, "two");
  arena_->give_record(*first);
  record(7, "three");  // in the record that came back, which lies before the others or after
  const auto replayed = replay();
  ASSERT_TRUE(replayed.ok());
  EXPECT_EQ(replayed->extents, 3u);
  EXPECT_EQ(replayed->bytes, 11u);
  EXPECT_EQ(seen_, "10=one 5=two 7=three ");
}

TEST_F(Replay, RefusesWhatItDoesNotKnow) {
  ArenaHeader header;
  ASSERT_EQ(::pread(fd_.get(), &header, sizeof header, 0), ssize_t{sizeof header});
  const auto with = [&](auto change) {
    ArenaHeader changed = header;
    change(changed);
    EXPECT_EQ(::pwrite(fd_.get(), &changed, sizeof changed, 0), ssize_t{sizeof changed});
    return replay().code();
  };
  EXPECT_EQ(with([](ArenaHeader& h) { h.magic ^= 1; }), Errc::invalid);
  EXPECT_EQ(with([](ArenaHeader& h) { h.version = 2; }), Errc::invalid);
  EXPECT_EQ(with([](ArenaHeader& h) { h.data_bytes = ~std::uint64_t{0}; }), Errc::invalid);
  EXPECT_EQ(with([](ArenaHeader& h) { h.records = ~std::uint64_t{0}; }), Errc::invalid);
  EXPECT_EQ(with([](ArenaHeader& h) { h.data_offset = 64; }), Errc::invalid);
  EXPECT_EQ(with([](ArenaHeader&) {}), Errc::ok);
}

TEST_F(Replay, ARecordThatPointsOutsideIsToldAndTheOthersAreGiven) {
  record(1, "good");
  arena_->write_record(*arena_->try_take_record(), {ArenaRecord::kLive, 0, 7, 8, 0, 100, 8_MiB - 50,
                                                    arena_->next_sequence(), 0});
  record(2, "too");
  EXPECT_EQ(replay().code(), Errc::corrupt);
  EXPECT_EQ(seen_, "1=good 2=too ");
}

TEST_F(Replay, AnEmptyFileIsNoArena) {
  char name[] = "/tmp/starlane-arena-XXXXXX";
  const UniqueFd empty(::mkstemp(name));
  ::unlink(name);
  EXPECT_EQ(replay_arena(empty.get(), [](const ReplayedExtent&) { return Status(); }).code(),
            Errc::invalid);
}

}  // namespace
}  // namespace starlane::client
