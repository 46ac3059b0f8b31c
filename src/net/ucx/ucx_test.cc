// Exposed memory over UCX, both ends in this process. rpc_test runs every call over it,
// bench/data_channel two processes.
#include "net/ucx/ucx_fabric.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "common/rng.h"

namespace starlane::net {
namespace {

std::vector<std::byte> noise(std::size_t size, std::uint64_t seed) {
  std::vector<std::byte> bytes(size);
  Rng rng(seed);
  for (auto& byte : bytes) byte = static_cast<std::byte>(rng.next());
  return bytes;
}

class UcxTest : public testing::Test {
 protected:
  void SetUp() override {
    auto client = make_ucx_fabric();
    ASSERT_TRUE(client.ok()) << client.status().to_string();
    client_ = std::move(client).value();
    server_ = std::move(make_ucx_fabric()).value();
  }
  std::unique_ptr<MemoryFabric> client_, server_;
};

TEST_F(UcxTest, TheServerMovesBytesIntoAndOutOfTheRegion) {
  auto exposed = client_->expose(4_MiB);
  ASSERT_TRUE(exposed.ok()) << exposed.status().to_string();
  auto reached = server_->reach(bytes_of((*exposed)->offer()));
  ASSERT_TRUE(reached.ok()) << reached.status().to_string();
  EXPECT_EQ((*reached)->size(), 4_MiB);
  const auto bytes = noise(1'000'003, 1);
  ASSERT_TRUE((*reached)->push(77, bytes).ok());
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), (*exposed)->region().begin() + 77));
  std::vector<std::byte> back(bytes.size());
  ASSERT_TRUE((*reached)->pull(77, back).ok());
  EXPECT_TRUE(back == bytes);
}

TEST_F(UcxTest, NothingOutsideTheRegionIsTouched) {
  auto exposed = client_->expose(64_KiB);
  auto reached = server_->reach(bytes_of((*exposed)->offer()));
  ASSERT_TRUE(reached.ok());
  std::vector<std::byte> some(10);
  EXPECT_EQ((*reached)->push(64_KiB - 9, some).code(), Errc::invalid);
  EXPECT_EQ((*reached)->pull(64_KiB + 1, some).code(), Errc::invalid);
  EXPECT_EQ((*reached)->pull(~std::uint64_t{0}, some).code(), Errc::invalid);
  EXPECT_TRUE((*reached)->push(64_KiB - 10, some).ok());
}

TEST_F(UcxTest, ALateServerWritesIntoNothingOfTheClients) {
  auto exposed = client_->expose(1_MiB);
  auto reached = server_->reach(bytes_of((*exposed)->offer()));
  ASSERT_TRUE(reached.ok());
  *exposed = nullptr;  // the client gave up
  EXPECT_TRUE(
      (*reached)->push(0, noise(1_MiB, 2)).ok());  // into a segment that nobody else has any more
}

TEST_F(UcxTest, OffersThatLieAreRefused) {
  auto exposed = client_->expose(64_KiB);
  const std::string offer = (*exposed)->offer();
  for (std::size_t length = 0; length < offer.size(); ++length) {
    EXPECT_FALSE(server_->reach(bytes_of(offer).first(length)).ok()) << length;
  }
  std::string longer = offer;
  store_little<std::uint64_t>(longer.data() + 16, 8_MiB);  // more than the segment has
  EXPECT_FALSE(server_->reach(bytes_of(longer)).ok());
  std::string elsewhere = offer;
  store_little<std::uint64_t>(elsewhere.data() + 8,
                              load_little<std::uint64_t>(offer.data() + 8) + 1_GiB);
  EXPECT_FALSE(server_->reach(bytes_of(elsewhere)).ok());
  std::string newer = offer;
  newer[4] = 9;
  EXPECT_EQ(server_->reach(bytes_of(newer)).code(), Errc::invalid);
  EXPECT_TRUE(server_->reach(bytes_of(offer)).ok());
}

TEST_F(UcxTest, DamagedOffersAreSurvived) {
  auto exposed = client_->expose(64_KiB);
  const std::string offer = (*exposed)->offer();
  const std::uint64_t seed = random_seed();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Rng rng(seed);
  for (std::size_t bit = 0; bit < offer.size() * 8; ++bit) {
    std::string damaged = offer;
    damaged[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    for (std::uint64_t more = bit % 3 == 0 ? rng.below(4) : 0; more > 0; --more) {
      damaged[32 + rng.below(offer.size() - 32)] = static_cast<char>(rng.next());
    }
    (void)server_->reach(bytes_of(damaged)).ok();
  }
  EXPECT_TRUE(server_->reach(bytes_of(offer)).ok());
}

TEST_F(UcxTest, ManyRegionsComeAndGo) {
  for (int i = 0; i < 40; ++i) {
    auto exposed = client_->expose(64_KiB);
    ASSERT_TRUE(exposed.ok());
    auto reached = server_->reach(bytes_of((*exposed)->offer()));
    ASSERT_TRUE(reached.ok());
    const auto bytes = noise(64_KiB, static_cast<std::uint64_t>(i));
    ASSERT_TRUE((*reached)->push(0, bytes).ok());
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), (*exposed)->region().begin()));
    if (i % 2 == 0) *exposed = nullptr;
  }
}

}  // namespace
}  // namespace starlane::net
