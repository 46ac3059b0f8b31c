#include "meta/acl.h"

#include <gtest/gtest.h>

#include "common/bytes.h"
#include "common/rng.h"
#include "meta/members/fixture.h"

namespace starlane::meta {
namespace {

constexpr std::uint32_t kNobody = 0xffffffff;

struct Given {
  std::uint16_t tag;
  std::uint16_t permissions;
  std::uint32_t id = kNobody;
};

std::string list_of(const std::vector<Given>& entries, std::uint32_t version = 2) {
  std::string value(4 + entries.size() * 8, '\0');
  store_little(value.data(), version);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    store_little(value.data() + 4 + i * 8, entries[i].tag);
    store_little(value.data() + 6 + i * 8, entries[i].permissions);
    store_little(value.data() + 8 + i * 8, entries[i].id);
  }
  return value;
}

// user::rw-, user:7:rwx, group::r-x, mask::mask, other::r--
std::string with_mask(std::uint16_t mask, std::uint16_t owner = 6, std::uint16_t other = 4) {
  return list_of({{1, owner}, {2, 7, 7}, {4, 5}, {16, mask}, {32, other}});
}

TEST(Acl, IsTheLongFormOfAMode) {
  const Acl plain = Acl::decode(list_of({{1, 6}, {4, 4}, {32, 0}})).value();
  EXPECT_TRUE(plain.is_mode_only());
  EXPECT_EQ(plain.permissions(), 0640u);
  Acl named = Acl::decode(with_mask(3)).value();
  EXPECT_FALSE(named.is_mode_only());
  EXPECT_EQ(named.permissions(), 0634u);
  EXPECT_EQ(named.encode(), with_mask(3));
  named.change_permissions(0751);
  EXPECT_EQ(named.encode(), with_mask(5, 7, 1));  // The group's own entry stays.
  EXPECT_EQ(Acl::decode(with_mask(7)).value().for_new(0640).encode(), with_mask(4, 6, 0));
}

TEST(Acl, RefusesWhatLinuxRefuses) {
  const Given owner{1, 6}, user{2, 7, 7}, group{4, 5}, groups{8, 5, 9}, mask{16, 7}, other{32, 0};
  EXPECT_TRUE(Acl::decode(list_of({owner, user, group, groups, mask, other})).ok());
  EXPECT_TRUE(Acl::decode(list_of({owner, group, mask, other})).ok());
  for (const auto& wrong : std::vector<std::vector<Given>>{{},
                                                           {owner, group},
                                                           {owner, other, group},
                                                           {owner, owner, group, other},
                                                           {owner, user, group, other},
                                                           {owner, group, groups, other},
                                                           {owner, group, mask, mask, other},
                                                           {{1, 8}, group, other},
                                                           {owner, {3, 1}, group, other},
                                                           {owner, group, other, {64, 1}}}) {
    EXPECT_EQ(Acl::decode(list_of(wrong)).code(), Errc::invalid) << wrong.size();
  }
  EXPECT_EQ(Acl::decode(list_of({owner, group, other}, 1)).code(), Errc::unsupported);
  EXPECT_EQ(Acl::decode(with_mask(7) + "x").code(), Errc::invalid);
  EXPECT_EQ(Acl::decode("").code(), Errc::invalid);
}

TEST(Acl, AnyBytesAreTakenOrRefusedAndComeBackTheSame) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed);
  int taken = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string value = with_mask(static_cast<std::uint16_t>(rng.below(8)));
    for (std::uint64_t change = rng.below(3); change > 0; --change)
      value[rng.below(value.size())] = static_cast<char>(rng.below(40));
    if (rng.one_in(10)) value.resize(rng.below(value.size() + 1));
    const Result<Acl> acl = Acl::decode(value);
    if (!acl.ok()) continue;
    ++taken;
    EXPECT_EQ(acl->encode(), value);
    EXPECT_LE(acl->permissions(), 0777u);
  }
  EXPECT_GT(taken, 1'000);
}

// ---- Over the server ----

class Acls : public ::testing::Test {
 protected:
  Acls() {
    EXPECT_TRUE(site_.create_volume("v").ok());
    EXPECT_TRUE(user_.attach("v").ok());
  }
  Status set(std::uint64_t inode, std::string_view name, const std::string& value,
             bool kill_setgid = false) {
    pb::XattrRequest request;
    user_.fill(request.mutable_on());
    request.set_inode(inode);
    request.set_name(std::string(name));
    request.set_value(value);
    request.set_kill_setgid(kill_setgid);
    return site_.ask(&MetaService::set_xattr, request).status();
  }
  Result<std::string> get(std::uint64_t inode, std::string_view name) {
    pb::XattrRequest request;
    user_.fill(request.mutable_on());
    request.set_inode(inode);
    request.set_name(std::string(name));
    const pb::XattrReply reply = SL_TRY(site_.ask(&MetaService::get_xattr, request));
    return reply.value();
  }
  Status chmod(std::uint64_t inode, std::uint32_t mode) {
    pb::SetAttributesRequest request;
    user_.fill(request.mutable_on());
    request.set_inode(inode);
    request.set_mode(mode);
    return site_.ask(&MetaService::set_attributes, request).status();
  }
  std::uint64_t make(std::uint64_t parent, const std::string& name, std::uint32_t mode,
                     std::uint32_t umask) {
    pb::CreateRequest request;
    user_.fill(request.mutable_on());
    request.set_parent(parent);
    request.set_name(name);
    request.set_mode(mode);
    request.set_umask(umask);
    if ((mode & kTypeMask) == kSymlink) request.set_target("there");
    const bool directory = (mode & kTypeMask) == kDirectory;
    const auto made = directory ? site_.ask(&MetaService::make_directory, request)
                                : site_.ask(&MetaService::create, request);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? made->attributes().inode() : 0;
  }
  std::uint32_t mode(std::uint64_t inode) { return user_.attributes(inode)->mode() & 07777; }

  Site site_;
  Client user_{site_};
};

TEST_F(Acls, ModeAndAccessListFollowEachOther) {
  const std::uint64_t file = make(1, "f", kRegular | 0600, 0);
  ASSERT_TRUE(set(file, kAccessAcl, with_mask(6)).ok());
  EXPECT_EQ(mode(file), 0664u);
  ASSERT_TRUE(chmod(file, 0751).ok());
  EXPECT_EQ(*get(file, kAccessAcl), with_mask(5, 7, 1));
  EXPECT_EQ(mode(file), 0751u);
  // A list that says no more than a mode is one.
  ASSERT_TRUE(set(file, kAccessAcl, list_of({{1, 6}, {4, 4}, {32, 0}})).ok());
  EXPECT_EQ(mode(file), 0640u);
  EXPECT_EQ(get(file, kAccessAcl).code(), Errc::no_attribute);
}

TEST_F(Acls, SetgidGoesWithAListByAStranger) {
  const std::uint64_t file = make(1, "f", kRegular | 02770, 0);
  ASSERT_TRUE(set(file, kAccessAcl, with_mask(7)).ok());
  EXPECT_EQ(mode(file), 02674u);
  ASSERT_TRUE(set(file, kAccessAcl, with_mask(7), true).ok());
  EXPECT_EQ(mode(file), 0674u);
}

TEST_F(Acls, WhatIsRefused) {
  const std::uint64_t file = make(1, "f", kRegular | 0600, 0);
  const std::uint64_t link = make(1, "l", kSymlink | 0777, 022);
  EXPECT_EQ(set(file, kDefaultAcl, with_mask(7)).code(), Errc::access);
  EXPECT_EQ(set(link, kAccessAcl, with_mask(7)).code(), Errc::unsupported);
  EXPECT_EQ(set(file, kAccessAcl, "nonsense").code(), Errc::invalid);
  EXPECT_EQ(mode(file), 0600u);
  EXPECT_EQ(mode(link), 0777u);
}

TEST_F(Acls, ADefaultListIsHandedDownInPlaceOfTheUmask) {
  const std::uint64_t directory = make(1, "d", kDirectory | 0777, 022);
  EXPECT_EQ(mode(directory), 0755u);
  ASSERT_TRUE(set(directory, kDefaultAcl, with_mask(7, 7, 5)).ok());
  EXPECT_EQ(mode(directory), 0755u);

  const std::uint64_t file = make(directory, "f", kRegular | 0666, 077);
  EXPECT_EQ(mode(file), 0664u);
  EXPECT_EQ(*get(file, kAccessAcl), with_mask(6, 6, 4));
  EXPECT_EQ(get(file, kDefaultAcl).code(), Errc::no_attribute);

  const std::uint64_t below = make(directory, "sub", kDirectory | 0770, 077);
  EXPECT_EQ(mode(below), 0770u);
  EXPECT_EQ(*get(below, kAccessAcl), with_mask(7, 7, 0));
  EXPECT_EQ(*get(below, kDefaultAcl), with_mask(7, 7, 5));
  EXPECT_EQ(mode(make(below, "pipe", 0010000 | 0622, 077)), 0620u);
  EXPECT_EQ(mode(make(below, "link", kSymlink | 0777, 077)), 0777u);

  // A default list without names: the mode alone.
  ASSERT_TRUE(set(directory, kDefaultAcl, list_of({{1, 6}, {4, 4}, {32, 0}})).ok());
  const std::uint64_t plain = make(directory, "plain", kRegular | 0666, 0);
  EXPECT_EQ(mode(plain), 0640u);
  EXPECT_EQ(get(plain, kAccessAcl).code(), Errc::no_attribute);
}

}  // namespace
}  // namespace starlane::meta
