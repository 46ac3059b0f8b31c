// The pieces under FileIo: ranges that shadow each other, memory in pieces, and where blocks are
// put and looked for.
#include <gtest/gtest.h>

#include <optional>

#include "client/blocks/block_client.h"
#include "client/blocks/buddy.h"
#include "client/blocks/range_map.h"
#include "client/write/fake_services.h"
#include "client/write/rig.h"

namespace starlane::client {
namespace {

struct From {
  std::uint64_t id = 0, at = 0;
  void skip(std::uint64_t bytes) { at += bytes; }
};

TEST(RangeMap, IsAnArrayOfBytes) {
  const std::uint64_t seed = random_seed();
  std::printf("seed %lu\n", seed);
  Rng rng(seed);
  constexpr std::uint64_t kSize = 300;
  RangeMap<From> map;
  std::vector<std::optional<std::pair<std::uint64_t, std::uint64_t>>> model(
      kSize);  // id, place in it
  for (std::uint64_t id = 1; id < 3000; ++id) {
    const std::uint64_t begin = rng.below(kSize), end = begin + rng.below(kSize - begin + 1);
    const auto mine = [&](std::uint64_t, std::uint64_t, const From& from) {
      return from.id % 3 == 0;
    };
    switch (rng.below(4)) {
      case 0:
        map.erase(begin, end);
        for (std::uint64_t i = begin; i < end; ++i) model[i].reset();
        break;
      case 1:
        map.erase_if(begin, end, mine);
        for (std::uint64_t i = begin; i < end; ++i) {
          if (model[i] && model[i]->first % 3 == 0) model[i].reset();
        }
        break;
      default:
        map.assign(begin, end, {id, 0});
        for (std::uint64_t i = begin; i < end; ++i) model[i] = {id, i - begin};
    }
    std::vector<std::optional<std::pair<std::uint64_t, std::uint64_t>>> shown(kSize);
    map.visit(begin / 2, kSize, [&](std::uint64_t from, std::uint64_t to, const From& value) {
      for (std::uint64_t i = from; i < to; ++i) shown[i] = {value.id, value.at + i - from};
    });
    for (std::uint64_t i = begin / 2; i < kSize; ++i)
      ASSERT_EQ(shown[i], model[i]) << "seed " << seed << " step " << id;
    const bool any = std::any_of(model.begin() + static_cast<std::ptrdiff_t>(begin),
                                 model.begin() + static_cast<std::ptrdiff_t>(end),
                                 [](const auto& b) { return b.has_value(); });
    ASSERT_EQ(map.touches(begin, end), any) << "seed " << seed << " step " << id;
    const auto held =
        std::count_if(model.begin(), model.end(), [](auto& b) { return b.has_value(); });
    ASSERT_EQ(map.bytes(), static_cast<std::uint64_t>(held)) << "seed " << seed << " step " << id;
  }
}

TEST(Buddy, PiecesNeverOverlapAndAllComeBack) {
  const std::uint64_t seed = random_seed();
  std::printf("seed %lu\n", seed);
  Rng rng(seed);
  constexpr std::uint32_t kUnits = 1024;
  Buddy buddy(kUnits + 5, 6);
  std::vector<int> owner(kUnits, 0);
  std::vector<std::pair<std::uint32_t, unsigned>> taken;
  std::uint64_t used = 0;
  for (int i = 1; i < 20'000; ++i) {
    if (!taken.empty() && rng.one_in(2)) {
      std::swap(taken[rng.below(taken.size())], taken.back());
      const auto [unit, order] = taken.back();
      taken.pop_back();
      for (std::uint32_t u = unit; u < unit + (1u << order); ++u) owner[u] = 0;
      used -= 1u << order;
      buddy.give(unit, order);
    } else {
      const auto order = static_cast<unsigned>(rng.below(7));
      const auto unit = buddy.take(order);
      if (!unit) continue;
      ASSERT_EQ(*unit % (1u << order), 0u);
      for (std::uint32_t u = *unit; u < *unit + (1u << order); ++u) {
        ASSERT_EQ(owner[u], 0) << "seed " << seed;
        owner[u] = i;
      }
      used += 1u << order;
      taken.emplace_back(*unit, order);
    }
    ASSERT_EQ(buddy.free_units(), kUnits - used);
  }
  for (const auto& [unit, order] : taken) buddy.give(unit, order);
  for (std::uint32_t i = 0; i < kUnits / 64; ++i) ASSERT_TRUE(buddy.take(6));  // all merged again
  EXPECT_FALSE(buddy.take(0));
}

class Placed : public ::testing::Test {
 protected:
  Placed()
      : blocks_(std::make_shared<FakeBlocks>(1)),
        meta_(*blocks_, 2),
        client_(meta_, [this](const std::string& endpoint) -> std::shared_ptr<BlockService> {
          return endpoint == away_ ? nullptr : blocks_;
        }) {}

  void targets(const std::vector<std::string>& states) {
    std::vector<pb::Target> all(states.size());
    for (std::uint32_t i = 0; i < states.size(); ++i) {
      all[i].set_id(i + 1);
      all[i].set_endpoint(std::to_string(i + 1));
      all[i].set_weight(1);
      all[i].set_state(states[i]);
      all[i].set_domain(std::to_string(i));
    }
    meta_.set_targets(all);
  }
  Result<std::uint64_t> put(std::uint32_t slice, std::string_view text) {
    return client_.put({{BranchId(1), SliceId(slice), 0}, 0, SessionId(1), 1, {bytes_of(text)}},
                       scope_);
  }
  Result<std::string> get(std::uint32_t slice, std::size_t length) {
    std::string text(length, 0);
    BlockClient::Get get;
    get.block = {BranchId(1), SliceId(slice), 0};
    get.persistence = BlockClient::Persistence::try_once;
    SL_TRY(client_.get(get, std::as_writable_bytes(std::span(text.data(), length)), scope_));
    return text;
  }

  std::shared_ptr<FakeBlocks> blocks_;
  FakeMeta meta_;
  std::string away_;
  BlockClient client_;
  Interrupts interrupts_;
  Interrupts::Scope scope_{interrupts_, 0};
};

TEST_F(Placed, ABlockIsFoundAfterTargetsWereAddedOrDrained) {
  targets({"up"});
  for (std::uint32_t i = 1; i <= 20; ++i) ASSERT_TRUE(put(i, "block " + std::to_string(i)).ok());
  targets({"up", "up", "up", "up"});
  for (std::uint32_t i = 21; i <= 40; ++i) ASSERT_TRUE(put(i, "block " + std::to_string(i)).ok());
  targets({"draining", "up", "up", "draining"});
  for (std::uint32_t i = 1; i <= 40; ++i) {
    const std::string want = "block " + std::to_string(i);
    const auto got = get(i, want.size());
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    EXPECT_EQ(*got, want);
  }
  EXPECT_EQ(get(99, 5).code(), Errc::not_found);
}

TEST_F(Placed, AwayIsNotGone) {
  targets({"up", "up"});
  for (std::uint32_t i = 1; i <= 20; ++i) ASSERT_TRUE(put(i, "x").ok());
  away_ = "1";
  int away = 0;
  for (std::uint32_t i = 1; i <= 20; ++i) {
    const auto got = get(i, 1);
    EXPECT_TRUE(got.ok() || got.code() == Errc::unavailable);
    away += !got.ok();
  }
  EXPECT_GT(away, 0);
  EXPECT_LT(away, 20);
}

TEST_F(Placed, SyncReachesEveryTargetThatWasPutTo) {
  targets({"up", "up", "up"});
  for (std::uint32_t i = 1; i <= 20; ++i) ASSERT_TRUE(put(i, "x").ok());
  EXPECT_FALSE(blocks_->has(BranchId(1), SliceId(1), 1, true));
  ASSERT_TRUE(client_.sync(scope_).ok());
  for (std::uint32_t i = 1; i <= 20; ++i)
    EXPECT_TRUE(blocks_->has(BranchId(1), SliceId(i), 1, true)) << i;
}

TEST_F(Placed, ALaterLayoutIsRefused) {
  targets({"up"});
  BlockClient::Get get;
  get.layout = 9;
  std::byte byte;
  EXPECT_EQ(client_.get(get, MutableByteSpan(&byte, 1), scope_).code(), Errc::unsupported);
}

}  // namespace
}  // namespace starlane::client
