// Offers of UCX that lie or are damaged. What every kind of exposed memory must do is in
// exposed_memory_test, what calls make of it in rpc_test and bench/data_channel.
#include "net/ucx/ucx_fabric.h"

#include <gtest/gtest.h>

#include "common/rng.h"

namespace starlane::net {
namespace {

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

TEST_F(UcxTest, OffersThatLieAreRefused) {
  auto exposed = client_->expose(64_KiB);
  const std::string offer = (*exposed)->offer();
  for (std::size_t length = 0; length < offer.size(); ++length) {
    EXPECT_FALSE(server_->reach(bytes_of(offer).first(length), UniqueFd()).ok()) << length;
  }
  std::string longer = offer;
  store_little<std::uint64_t>(longer.data() + 16, 8_MiB);  // more than the segment has
  EXPECT_FALSE(server_->reach(bytes_of(longer), UniqueFd()).ok());
  std::string elsewhere = offer;
  store_little<std::uint64_t>(elsewhere.data() + 8,
                              load_little<std::uint64_t>(offer.data() + 8) + 1_GiB);
  EXPECT_FALSE(server_->reach(bytes_of(elsewhere), UniqueFd()).ok());
  std::string newer = offer;
  newer[4] = 9;
  EXPECT_EQ(server_->reach(bytes_of(newer), UniqueFd()).code(), Errc::invalid);
  EXPECT_TRUE(server_->reach(bytes_of(offer), UniqueFd()).ok());
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
    (void)server_->reach(bytes_of(damaged), UniqueFd()).ok();
  }
  EXPECT_TRUE(server_->reach(bytes_of(offer), UniqueFd()).ok());
}

}  // namespace
}  // namespace starlane::net
