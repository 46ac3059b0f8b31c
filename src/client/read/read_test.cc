// Which reads are taken for streams, and what the block cache does when memory is short.
#include <gtest/gtest.h>

#include "client/read/block_cache.h"
#include "client/read/read_streams.h"
#include "common/rng.h"

namespace starlane::client {
namespace {

constexpr std::uint64_t kMax = 64_MiB;

TEST(ReadStreams, RandomSmallReadsAreNoStream) {
  ReadStreams streams;
  Rng rng(1);
  for (int i = 0; i < 1000; ++i) {
    const auto advice = streams.note(rng.below(1 << 20) * 8192, 4096, kMax);
    EXPECT_FALSE(advice.sequential);
    EXPECT_EQ(advice.ahead_begin, advice.ahead_end);
  }
}

TEST(ReadStreams, AheadOfAStreamEverythingIsAskedForOnceInOrder) {
  ReadStreams streams;
  std::uint64_t asked = 0;
  for (std::uint64_t at = 0; at < 200_MiB; at += 128_KiB) {
    const auto advice = streams.note(at, 128_KiB, kMax);
    EXPECT_TRUE(advice.sequential);
    if (advice.ahead_begin == advice.ahead_end) continue;
    EXPECT_EQ(advice.ahead_begin, std::max(asked, at + 128_KiB));
    EXPECT_GT(advice.ahead_end, advice.ahead_begin);
    asked = advice.ahead_end;
    EXPECT_LE(asked, at + 128_KiB + 8_MiB);  // nobody waited: no further
  }
  EXPECT_GE(asked, 200_MiB);
}

TEST(ReadStreams, TheWindowGrowsWhileReadersWaitAndNotBeyondItsLimit) {
  ReadStreams streams;
  std::uint64_t furthest = 0;
  for (std::uint64_t at = 0; at < 200_MiB; at += 1_MiB) {
    const auto advice = streams.note(at, 1_MiB, 32_MiB);
    if (advice.ahead_end != 0) furthest = std::max(furthest, advice.ahead_end - at - 1_MiB);
    streams.waited(at);
  }
  EXPECT_GT(furthest, 24_MiB);
  EXPECT_LE(furthest, 32_MiB);
}

TEST(ReadStreams, ManyStreamsOnOneDescriptor) {
  ReadStreams streams;
  constexpr std::uint64_t kStreams = 16;
  int sequential = 0;
  for (std::uint64_t step = 0; step < 100; ++step) {
    for (std::uint64_t s = 0; s < kStreams; ++s) {
      sequential += streams.note(s * 1_GiB + step * 16_KiB, 16_KiB, kMax).sequential;
    }
  }
  EXPECT_EQ(sequential, 99 * kStreams);  // all but the first read of each
}

TEST(ReadStreams, ReadsOutOfOrderStayOneStream) {
  ReadStreams streams;
  for (std::uint64_t at = 0; at < 50_MiB; at += 512_KiB) {
    EXPECT_TRUE(streams.note(at + 256_KiB, 256_KiB, kMax).sequential);
    EXPECT_TRUE(streams.note(at, 256_KiB, kMax).sequential);
  }
}

class Cache : public ::testing::Test {
 protected:
  static BlockCache::Range range(std::uint64_t slice, std::uint32_t begin, std::uint32_t end) {
    return {{BranchId(1), SliceId(slice), 0}, kBlockSize, begin, end};
  }
  std::uint64_t fill(const BlockCache::Range& wanted, bool whole, std::byte value) {
    std::uint64_t bytes = 0;
    while (const auto claim = cache_.claim(wanted, whole)) {
      std::fill(claim.memory.begin(), claim.memory.end(), value);
      bytes += claim.memory.size();
      cache_.filled(claim, {});
    }
    return bytes;
  }
  std::uint32_t here(const BlockCache::Range& wanted) {
    std::vector<Piece> pieces;
    return cache_.look(wanted, pieces);
  }
  BlockCache cache_{16_MiB};
};

TEST_F(Cache, OnlyWhatIsMissingIsClaimedAndPiecesAreWhole) {
  EXPECT_EQ(fill(range(1, 70'000, 80'000), false, std::byte{1}), 64_KiB);
  EXPECT_EQ(fill(range(1, 0, kBlockSize), true, std::byte{2}), 4_MiB - 64_KiB);
  EXPECT_EQ(here(range(1, 0, kBlockSize)), kBlockSize);
  std::vector<Piece> pieces;
  EXPECT_EQ(cache_.look(range(1, 0, kBlockSize), pieces), kBlockSize);
  std::uint64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.bytes.size();
  EXPECT_EQ(bytes, kBlockSize);
  EXPECT_LE(pieces.size(), 9u);
  EXPECT_EQ(pieces[0].bytes[0], std::byte{2});
  fill(range(2, 0, kBlockSize), true, std::byte{3});
  pieces.clear();
  cache_.look(range(2, 1000, kBlockSize), pieces);
  EXPECT_EQ(pieces.size(), 1u);  // a block read whole lies in one piece
}

TEST_F(Cache, AFailedFetchIsClaimedAgain) {
  const auto claim = cache_.claim(range(1, 0, 1000), false);
  ASSERT_TRUE(claim);
  EXPECT_FALSE(cache_.claim(range(1, 0, 1000), false));
  cache_.filled(claim, Status(Errc::io, "no"));
  EXPECT_EQ(here(range(1, 0, 1000)), 0u);
  EXPECT_TRUE(cache_.claim(range(1, 0, 1000), false));
}

TEST_F(Cache, StaysInItsBytesAndKeepsWhatIsHeld) {
  fill(range(1, 0, kBlockSize), true, std::byte{7});
  std::vector<Piece> held;
  cache_.look(range(1, 0, kBlockSize), held);
  for (std::uint64_t slice = 2; slice < 50; ++slice) {
    fill(range(slice, 0, kBlockSize), true, std::byte{8});
    EXPECT_LE(cache_.used_bytes(), 16_MiB);
  }
  for (const Piece& piece : held) {
    EXPECT_EQ(std::count(piece.bytes.begin(), piece.bytes.end(), std::byte{7}),
              static_cast<std::ptrdiff_t>(piece.bytes.size()));
  }
  EXPECT_EQ(here(range(49, 0, kBlockSize)), kBlockSize);  // the latest is here
  EXPECT_EQ(here(range(2, 0, kBlockSize)), 0u);
}

TEST_F(Cache, EverythingHeldIsNoDeadlock) {
  std::vector<Piece> held;
  for (std::uint64_t slice = 1; slice <= 6; ++slice) {
    fill(range(slice, 0, kBlockSize), true, std::byte{1});
    cache_.look(range(slice, 0, kBlockSize), held);
  }
  EXPECT_GT(cache_.used_bytes(), 16_MiB);  // what requests hold is bounded by them
  held.clear();
  fill(range(9, 0, kBlockSize), true, std::byte{1});
  EXPECT_EQ(here(range(9, 0, kBlockSize)), kBlockSize);
}

}  // namespace
}  // namespace starlane::client
