#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "wire/site.h"

namespace starlane::wire {
namespace {

class SiteTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/starlane-wire-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    base_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(base_); }
  std::filesystem::path base_;
};

TEST_F(SiteTest, IsMadeOnceAndFoundAgain) {
  const auto made = Site::open_or_create(base_ / "site");
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const auto found = Site::open(base_ / "site");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->cluster(), made->cluster());
  EXPECT_EQ(found->cluster().size(), 36U);
  EXPECT_EQ(std::filesystem::status(found->key_file()).permissions() & std::filesystem::perms::mask,
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(SiteTest, LeavesForeignDirectoriesAlone) {
  std::ofstream(base_ / "precious") << "x";
  EXPECT_EQ(Site::open_or_create(base_).code(), Errc::exists);
  EXPECT_EQ(Site::open(base_).code(), Errc::not_found);
  EXPECT_FALSE(std::filesystem::exists(base_ / "key"));
}

TEST_F(SiteTest, RefusesDamagedAndNewerOnes) {
  ASSERT_TRUE(Site::open_or_create(base_ / "site").ok());
  std::ofstream(base_ / "site/site.json") << "{\"what\":\"starlane site\",\"format\":2}";
  EXPECT_EQ(Site::open_or_create(base_ / "site").code(), Errc::unsupported);
  std::ofstream(base_ / "site/site.json") << "not json";
  EXPECT_EQ(Site::open(base_ / "site").code(), Errc::corrupt);
}

TEST_F(SiteTest, ARoleIsLockedOnce) {
  const auto site = Site::open_or_create(base_ / "site");
  ASSERT_TRUE(site.ok());
  const auto first = site->lock("meta");
  ASSERT_TRUE(first.ok());
  const auto second = site->lock("meta");
  ASSERT_EQ(second.code(), Errc::busy);
  EXPECT_NE(second.status().text().find(std::to_string(::getpid())), std::string::npos);
  EXPECT_TRUE(site->lock("store").ok());
}

TEST_F(SiteTest, SocketsFitTheirAddressHoweverDeepTheSite) {
  const auto deep = Site::open_or_create(base_ / std::string(80, 'd') / std::string(80, 'e'));
  ASSERT_TRUE(deep.ok());
  EXPECT_LT(deep->endpoint("meta").size(), 100U);
  EXPECT_NE(deep->endpoint("meta"), deep->endpoint("store"));
}

}  // namespace
}  // namespace starlane::wire
