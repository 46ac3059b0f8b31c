#include "meta/chunk.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/rng.h"

namespace starlane::meta {
namespace {

constexpr std::uint32_t kSize = 200;  // of the modelled part of the chunk

/// The other route: a byte array in which every write is done.
struct Model {
  std::vector<std::uint64_t> bytes = std::vector<std::uint64_t>(kSize);  // 0: hole or zero
  std::vector<bool> covered = std::vector<bool>(kSize);

  void write(std::uint32_t first, std::uint32_t last, std::uint64_t tag) {
    for (std::uint32_t at = first; at < last; ++at) {
      bytes[at] = tag == 0 ? 0 : (tag << 32) + (at - first);
      covered[at] = tag != 0;
    }
  }
};

Entry data(std::uint32_t first, std::uint32_t last, std::uint64_t slice) {
  Entry entry;
  entry.position = first;
  entry.length = entry.slice_length = last - first;
  entry.slice = SliceId{slice};
  return entry;
}

std::vector<std::uint64_t> read(const Chunk& chunk) {
  std::vector<std::uint64_t> bytes(kSize);
  for (const Entry& entry : chunk.entries()) {
    for (std::uint32_t i = 0; i < entry.length && entry.position + i < kSize; ++i) {
      const bool zero = entry.kind == SliceKind::zero;
      bytes[entry.position + i] = zero ? 0 : (entry.slice.value << 32) + entry.offset + i;
    }
  }
  return bytes;
}

void expect_same(const Chunk& chunk, const Model& model) {
  EXPECT_EQ(read(chunk), model.bytes);
  EXPECT_EQ(chunk.covered(), static_cast<std::uint64_t>(
                                 std::count(model.covered.begin(), model.covered.end(), true)));
  std::uint32_t end = 0;
  for (const Piece& piece : visible_pieces(chunk.entries())) {
    EXPECT_GE(piece.position, end);
    EXPECT_GT(piece.length, 0u);
    end = piece.end();
    for (std::uint32_t at = piece.position; at < std::min(end, kSize); ++at) {
      EXPECT_EQ(model.bytes[at] == 0, chunk.entries()[piece.entry].kind == SliceKind::zero);
    }
  }
}

TEST(Chunk, RandomChangesReadAsInTheModel) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed);
  for (int round = 0; round < 300; ++round) {
    Chunk chunk;
    Model model;
    for (std::uint64_t step = 1; step <= 40; ++step) {
      const auto first = static_cast<std::uint32_t>(rng.below(kSize));
      const auto last = first + 1 + static_cast<std::uint32_t>(rng.below(kSize - first));
      switch (rng.below(8)) {
        case 0:
          chunk.zero(first, last);
          model.write(first, last, 0);
          break;
        case 1:
          chunk.cut(first);
          model.write(first, kSize, 0);
          break;
        default:
          chunk.add(data(first, last, step));
          model.write(first, last, step);
      }
      if (rng.one_in(3)) chunk.tidy({});
      expect_same(chunk, model);
    }
    if (testing::Test::HasFailure()) break;
  }
}

TEST(Chunk, ShadowedEntriesGo) {
  Chunk chunk;
  chunk.add(data(10, 20, 1));
  chunk.add(data(15, 25, 2));
  chunk.tidy({});
  EXPECT_EQ(chunk.entries().size(), 2u);
  chunk.add(data(0, 25, 3));
  chunk.tidy({});
  ASSERT_EQ(chunk.entries().size(), 1u);
  EXPECT_EQ(chunk.entries()[0].slice, SliceId{3});
}

TEST(Chunk, ZerosOverNothingGo) {
  Chunk chunk;
  chunk.add(data(10, 20, 1));
  chunk.zero(30, 40);
  chunk.tidy({});
  EXPECT_EQ(chunk.entries().size(), 1u);
  chunk.zero(0, 15);
  chunk.tidy({});
  EXPECT_EQ(chunk.entries().size(), 2u);
  chunk.zero(0, 100);
  chunk.tidy({});
  EXPECT_TRUE(chunk.empty());
}

Entry inline_entry(std::uint32_t position, std::uint32_t length, std::uint64_t slice) {
  Entry entry = data(position, position + length, slice);
  entry.kind = SliceKind::inline_bytes;
  return entry;
}

TEST(Chunk, SmallInlineListsBecomeOne) {
  Chunk chunk;
  chunk.add(inline_entry(0, 5, 1), "hello");
  chunk.add(inline_entry(5, 6, 2), " world");
  chunk.add(inline_entry(0, 1, 3), "J");
  chunk.tidy(SliceId{9});
  ASSERT_EQ(chunk.entries().size(), 1u);
  EXPECT_EQ(chunk.row().inline_of(SliceId{9}), "Jello world");
}

TEST(Chunk, InlineListsWithHolesOrDataStay) {
  Chunk chunk;
  chunk.add(inline_entry(0, 5, 1), "hello");
  chunk.add(inline_entry(7, 2, 2), "ab");
  chunk.tidy(SliceId{9});
  EXPECT_EQ(chunk.entries().size(), 2u);
  chunk.add(data(3, 8, 3));
  chunk.tidy(SliceId{10});
  EXPECT_EQ(chunk.entries().size(), 3u);
  EXPECT_EQ(chunk.inline_size(), 7u);
}

}  // namespace
}  // namespace starlane::meta
