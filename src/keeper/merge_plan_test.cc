#include "keeper/merge_plan.h"

#include <gtest/gtest.h>

#include "common/bytes.h"
#include "common/rng.h"

namespace starlane::keeper {
namespace {

void add(EntryList& entries, std::uint32_t position, std::uint32_t length,
         pb::SliceEntry::Kind kind = pb::SliceEntry::DATA) {
  pb::SliceEntry* entry = entries.Add();
  entry->set_position(position);
  entry->set_length(length);
  entry->set_slice_length(length);
  entry->set_kind(kind);
}

TEST(MergePlan, LaterEntriesShadowEarlierOnes) {
  EntryList entries;
  add(entries, 0, 100);
  add(entries, 40, 20);
  const auto pieces = seen_pieces(entries);
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[0].length, 40u);
  EXPECT_EQ(pieces[1].entry, 1u);
  EXPECT_EQ(pieces[2].position, 60u);
  EXPECT_EQ(pieces[2].skip, 60u);
  const auto runs = plan_merge(entries, 8);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].length, 100u);
}

TEST(MergePlan, ZerosAndHolesAreLeftOut) {
  EntryList entries;
  add(entries, 0, 100);
  add(entries, 50, 100, pb::SliceEntry::ZERO);
  add(entries, 200, 10);
  const auto runs = plan_merge(entries, 8);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].length, 50u);
  EXPECT_EQ(runs[1].position, 200u);
}

TEST(MergePlan, TheSmallestHolesAreBridged) {
  EntryList entries;
  for (const std::uint32_t position : {0u, 20u, 1000u, 1011u}) add(entries, position, 10);
  EXPECT_EQ(plan_merge(entries, 4).size(), 4u);
  EXPECT_EQ(plan_merge(entries, 3).size(), 3u) << "the hole of one byte";
  EXPECT_EQ(plan_merge(entries, 2).size(), 2u);
  const auto one = plan_merge(entries, 1);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].length, 1021u);
}

TEST(MergePlan, AListOfZerosBecomesNothing) {
  EntryList entries;
  add(entries, 0, 100);
  add(entries, 0, 100, pb::SliceEntry::ZERO);
  EXPECT_TRUE(plan_merge(entries, 4).empty());
}

TEST(MergePlan, ImpossibleEntriesAreRefused) {
  EntryList beyond_chunk;
  add(beyond_chunk, static_cast<std::uint32_t>(kChunkSize) - 1, 2);
  EXPECT_EQ(check_entries(beyond_chunk).code(), Errc::corrupt);
  EntryList beyond_slice;
  add(beyond_slice, 0, 10);
  beyond_slice.Mutable(0)->set_offset(1);
  EXPECT_EQ(check_entries(beyond_slice).code(), Errc::corrupt);
}

// Against a model with one number a byte.
TEST(MergePlan, AtRandomShowsWhatTheListShows) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed);
  for (int round = 0; round < 500; ++round) {
    constexpr std::uint32_t kSize = 300;
    EntryList entries;
    std::vector<std::pair<int, std::uint32_t>> model(kSize, {-1, 0});  // entry, byte of it
    for (int i = 0; i < 30; ++i) {
      const auto position = static_cast<std::uint32_t>(rng.below(kSize - 1));
      const auto length =
          static_cast<std::uint32_t>(1 + rng.below(std::min<std::uint32_t>(60, kSize - position)));
      const bool zero = rng.one_in(4);
      add(entries, position, length, zero ? pb::SliceEntry::ZERO : pb::SliceEntry::DATA);
      for (std::uint32_t at = 0; at < length; ++at)
        model[position + at] = {zero ? -1 : i, zero ? 0 : at};
    }
    const std::size_t max_runs = 1 + rng.below(6);
    std::vector<std::pair<int, std::uint32_t>> shown(kSize, {-1, 0});
    const auto runs = plan_merge(entries, max_runs);
    EXPECT_LE(runs.size(), max_runs);
    std::uint32_t end = 0;
    for (const MergedRun& run : runs) {
      EXPECT_GE(run.position, end);
      end = run.position + run.length;
      for (const SeenPiece& piece : run.pieces) {
        EXPECT_GE(piece.position, run.position);
        EXPECT_LE(piece.position + piece.length, end);
        for (std::uint32_t at = 0; at < piece.length; ++at) {
          shown[piece.position + at] = {static_cast<int>(piece.entry), piece.skip + at};
        }
      }
    }
    ASSERT_EQ(shown, model);
  }
}

}  // namespace
}  // namespace starlane::keeper
