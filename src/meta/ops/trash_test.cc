// The trash: what goes there and what does not, what comes back, and when it is gone. And escrow: a
// session's part of the quota.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "meta/members/fixture.h"
#include "meta/rows.h"

namespace starlane::meta {
namespace {

constexpr auto kDay = std::chrono::hours(24);
constexpr auto kMinute = std::chrono::seconds(60);

class Trash : public testing::Test {
 protected:
  Trash() {
    EXPECT_TRUE(site.create_volume("v").ok());
    EXPECT_TRUE(user.attach("v").ok());
  }
  ~Trash() override { EXPECT_EQ(site.check(), std::vector<std::string>()); }

  void let_pass(Nanoseconds time) {
    site.clock.advance(time);
    ASSERT_TRUE(user.beat().ok());
    site.clock.advance(site.heartbeat * 2);
    ASSERT_TRUE(user.beat().ok());
  }
  /// A file old enough to be kept.
  std::uint64_t old_file(const std::string& name, std::uint32_t bytes = 0, std::uint64_t in = 1) {
    const std::uint64_t inode = user.create(in, name).value();
    if (bytes > 0) {
      EXPECT_TRUE(user.write(inode, 0, bytes).ok());
    }
    let_pass(kMinute);
    return inode;
  }
  Status rmdir(std::uint64_t parent, const std::string& name) {
    pb::UnlinkRequest request;
    user.fill(request.mutable_on());
    request.set_parent(parent);
    request.set_name(name);
    return site.ask(&MetaService::remove_directory, request).status();
  }
  Result<pb::RenameReply> rename(const std::string& from, const std::string& to) {
    pb::RenameRequest request;
    user.fill(request.mutable_on());
    request.set_parent(1);
    request.set_name(from);
    request.set_new_parent(1);
    request.set_new_name(to);
    return site.ask(&MetaService::rename, request);
  }
  std::vector<pb::TrashEntry> listed(std::uint32_t page = 2) {
    std::vector<pb::TrashEntry> all;
    pb::TrashListRequest request;
    request.set_branch(user.branch.value);
    request.set_limit(page);
    do {
      const auto reply = site.ask(&MetaService::trash_list, request);
      EXPECT_TRUE(reply.ok()) << reply.status().to_string();
      if (!reply.ok()) break;
      all.insert(all.end(), reply->entries().begin(), reply->entries().end());
      request.set_cursor(reply->cursor());
    } while (!request.cursor().empty());
    return all;
  }
  std::set<std::string> names() {
    std::set<std::string> names;
    for (const pb::TrashEntry& entry : listed()) names.insert(entry.name());
    return names;
  }
  Result<pb::Attributes> restore(const pb::TrashEntry& entry, std::uint64_t parent = 0,
                                 const std::string& name = "", std::uint64_t number = 0) {
    pb::TrashRestoreRequest request;
    user.fill(request.mutable_on(), number);
    *request.mutable_item() = entry.item();
    request.set_parent(parent);
    request.set_name(name);
    const pb::NewEntry made = SL_TRY(site.ask(&MetaService::trash_restore, request));
    return made.attributes();
  }
  Result<pb::TrashEmptyReply> empty() {
    pb::TrashEmptyRequest request;
    request.set_branch(user.branch.value);
    return site.ask(&MetaService::trash_empty, request);
  }
  Result<std::uint64_t> look_up(std::uint64_t parent, const std::string& name) {
    pb::LookupRequest request;
    user.fill(request.mutable_on());
    request.set_parent(parent);
    request.set_name(name);
    const pb::NewEntry entry = SL_TRY(site.ask(&MetaService::lookup, request));
    return entry.attributes().inode();
  }
  pb::Volume volume() {
    pb::VolumeRequest request;
    request.set_name("v");
    return site.ask(&MetaService::volume_get, request).value();
  }
  Status set(const std::function<void(pb::VolumeSettings&)>& change) {
    pb::VolumeSettings settings;
    settings.set_name("v");
    change(settings);
    return site.ask(&MetaService::volume_set, settings).status();
  }
  bool exists(std::uint64_t inode) {
    return site.engine.begin()->get(inode_key(user.branch, InodeId{inode}))->has_value();
  }

  Site site;
  Client user{site};
};

TEST_F(Trash, AFileComesBackAsItWas) {
  const std::uint64_t inode = old_file("f", 1000);
  const pb::Attributes before = user.attributes(inode).value();
  ASSERT_TRUE(user.unlink(1, "f").ok());
  EXPECT_EQ(user.attributes(inode)->nlink(), 0u);
  EXPECT_EQ(volume().live_bytes(), 0u);
  EXPECT_EQ(volume().inodes(), 1u);
  EXPECT_EQ(volume().trash_bytes(), 1000u);
  EXPECT_EQ(volume().trash_inodes(), 1u);
  let_pass(kMinute);
  EXPECT_EQ(site.keep_all_house().freed_inodes(), 0u);
  ASSERT_EQ(listed().size(), 1u);
  const pb::Attributes after = restore(listed()[0]).value();
  EXPECT_EQ(look_up(1, "f").value(), inode);
  EXPECT_EQ(after.length(), before.length());
  EXPECT_EQ(after.version(), before.version());
  EXPECT_EQ(after.mtime().seconds(), before.mtime().seconds());
  EXPECT_EQ(after.nlink(), 1u);
  EXPECT_TRUE(listed().empty());
  EXPECT_EQ(volume().live_bytes(), 1000u);
  EXPECT_EQ(volume().trash_bytes(), 0u);
  EXPECT_TRUE(site.remove_dead().empty());
}

TEST_F(Trash, ItGoesWhenItsTimeHasCome) {
  const std::uint64_t inode = old_file("f", 1000);
  ASSERT_TRUE(user.unlink(1, "f").ok());
  let_pass(kDay - std::chrono::hours(1));
  EXPECT_EQ(site.keep_all_house().freed_inodes(), 0u);
  let_pass(std::chrono::hours(1));
  EXPECT_EQ(site.keep_all_house().freed_inodes(), 1u);
  EXPECT_FALSE(exists(inode));
  EXPECT_EQ(site.remove_dead().size(), 1u);
  EXPECT_EQ(volume().trash_inodes(), 0u);
  EXPECT_EQ(volume().held_bytes(), 0u);
}

TEST_F(Trash, TemporariesAndWhatIsReplacedGoAtOnce) {
  const std::uint64_t young = user.create(1, "young").value();
  ASSERT_TRUE(user.unlink(1, "young").ok());
  old_file("old", 10);
  const std::uint64_t next = user.create(1, "next").value();
  ASSERT_TRUE(rename("next", "old").ok());
  EXPECT_EQ(look_up(1, "old").value(), next);
  let_pass(kMinute);
  EXPECT_TRUE(names().empty());
  EXPECT_EQ(site.keep_all_house().freed_inodes(), 2u);
  EXPECT_FALSE(exists(young));
}

TEST_F(Trash, OnlyTheLastNameOfAFileMatters) {
  const std::uint64_t inode = old_file("one", 10);
  ASSERT_TRUE(user.link(inode, 1, "two").ok());
  ASSERT_TRUE(user.unlink(1, "one").ok());
  EXPECT_TRUE(names().empty());
  ASSERT_TRUE(user.unlink(1, "two").ok());
  EXPECT_EQ(names(), std::set<std::string>{"two"});
  EXPECT_EQ(user.link(inode, 1, "three").code(), Errc::not_found) << "it has to be restored";
  ASSERT_TRUE(restore(listed()[0]).ok());
  ASSERT_TRUE(user.link(inode, 1, "three").ok());
}

TEST_F(Trash, ATreeComesBackFromItsRootDown) {
  const std::uint64_t top = user.mkdir(1, "top").value();
  const std::uint64_t sub = user.mkdir(top, "sub").value();
  const std::uint64_t file = old_file("f", 10, sub);
  pb::XattrRequest xattr;
  user.fill(xattr.mutable_on());
  xattr.set_inode(sub);
  xattr.set_name("user.color");
  xattr.set_value("blue");
  ASSERT_TRUE(site.ask(&MetaService::set_xattr, xattr).ok());
  ASSERT_TRUE(user.unlink(sub, "f").ok());
  ASSERT_TRUE(rmdir(top, "sub").ok());
  ASSERT_TRUE(rmdir(1, "top").ok());
  EXPECT_EQ(names(), (std::set<std::string>{"top", "sub", "f"}));
  EXPECT_EQ(volume().inodes(), 1u);
  EXPECT_EQ(user.attributes(sub)->nlink(), 0u);
  EXPECT_EQ(user.create(sub, "late").code(), Errc::not_found);
  EXPECT_EQ(user.link(old_file("other"), top, "late").code(), Errc::not_found);
  EXPECT_EQ(site.check(), std::vector<std::string>());

  std::map<std::string, pb::TrashEntry> all;
  for (const pb::TrashEntry& entry : listed()) all[entry.name()] = entry;
  EXPECT_EQ(restore(all["f"]).code(), Errc::not_found) << "its directory is deleted";
  for (const char* name : {"top", "sub", "f"}) ASSERT_TRUE(restore(all[name]).ok()) << name;
  EXPECT_EQ(look_up(1, "top").value(), top);
  EXPECT_EQ(look_up(top, "sub").value(), sub);
  EXPECT_EQ(look_up(sub, "f").value(), file);
  EXPECT_EQ(site.ask(&MetaService::get_xattr, xattr)->value(), "blue");
  EXPECT_EQ(user.attributes(top)->nlink(), 3u);
  EXPECT_EQ(user.attributes(sub)->entries(), 1u);
  EXPECT_TRUE(user.create(sub, "new").ok());
}

TEST_F(Trash, RestoreGoesElsewhereAndOverwritesNothing) {
  const std::uint64_t inode = old_file("f", 10);
  ASSERT_TRUE(user.unlink(1, "f").ok());
  const std::uint64_t other = user.create(1, "f").value();
  const pb::TrashEntry entry = listed().at(0);
  EXPECT_EQ(restore(entry).code(), Errc::exists);
  const std::uint64_t directory = user.mkdir(1, "d").value();
  EXPECT_EQ(restore(entry, directory, "a/b").code(), Errc::invalid);
  ASSERT_TRUE(restore(entry, directory, "g").ok());
  EXPECT_EQ(look_up(directory, "g").value(), inode);
  EXPECT_EQ(look_up(1, "f").value(), other);
  EXPECT_EQ(restore(entry).code(), Errc::not_found);
}

TEST_F(Trash, ARepeatedRestoreIsOne) {
  old_file("f");
  ASSERT_TRUE(user.unlink(1, "f").ok());
  const pb::TrashEntry entry = listed().at(0);
  ASSERT_TRUE(restore(entry, 0, "", 77).ok());
  EXPECT_TRUE(restore(entry, 0, "", 77).ok());
}

TEST_F(Trash, AnOpenFileLivesOnAndMayComeBackOpen) {
  const std::uint64_t inode = old_file("f", 100);
  ASSERT_TRUE(user.unlink(1, "f", true).ok());
  ASSERT_TRUE(user.write(inode, 100, 50).ok()) << "written through its descriptor";
  EXPECT_EQ(volume().trash_bytes(), 100u) << "as it was deleted";
  ASSERT_TRUE(user.beat({inode}).ok());
  ASSERT_TRUE(restore(listed().at(0)).ok());
  EXPECT_EQ(volume().live_bytes(), 150u);
  ASSERT_TRUE(user.beat({inode}).ok());
  ASSERT_TRUE(user.unlink(1, "f", true).ok());
  ASSERT_TRUE(empty().ok());
  let_pass(kMinute);  // beats without it: closed
  EXPECT_EQ(site.keep_all_house().freed_inodes(), 1u);
}

TEST_F(Trash, EmptyingFreesAllOfIt) {
  const std::uint64_t top = user.mkdir(1, "top").value();
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(user.create(top, std::to_string(i)).ok());
  pb::CreateRequest symlink;
  user.fill(symlink.mutable_on());
  symlink.set_parent(top);
  symlink.set_name("link");
  symlink.set_mode(kSymlink | 0777);
  symlink.set_target("target");
  ASSERT_TRUE(site.ask(&MetaService::create, symlink).ok());
  let_pass(kMinute);
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(user.unlink(top, std::to_string(i)).ok());
  ASSERT_TRUE(user.unlink(top, "link").ok());
  ASSERT_TRUE(rmdir(1, "top").ok());
  EXPECT_EQ(listed(100).size(), 302u);
  EXPECT_EQ(volume().trash_bytes(), 6u) << "the target of the symbolic link";
  EXPECT_TRUE(empty()->more());
  EXPECT_FALSE(empty()->more());
  let_pass(kMinute);
  EXPECT_EQ(site.keep_all_house().freed_inodes(), 302u);
  EXPECT_EQ(site.rows(user.branch, Table::inode).size(), 1u);
  EXPECT_EQ(site.rows(user.branch, Table::unlinked).size(), 0u);
}

TEST_F(Trash, SettingsApplyToWhatIsThere) {
  old_file("f", 10);
  ASSERT_TRUE(user.unlink(1, "f").ok());
  ASSERT_TRUE(set([](pb::VolumeSettings& to) { to.set_trash_seconds(0); }).ok());
  let_pass(kMinute);
  EXPECT_EQ(site.keep_all_house().freed_inodes(), 1u);
  old_file("g", 10);
  ASSERT_TRUE(user.unlink(1, "g").ok());
  EXPECT_TRUE(names().empty());
  ASSERT_TRUE(set([](pb::VolumeSettings& to) {
                to.set_trash_seconds(10);
                to.set_trash_min_age_seconds(0);
              }).ok());
  ASSERT_TRUE(user.create(1, "h").ok());
  ASSERT_TRUE(user.unlink(1, "h").ok());
  EXPECT_EQ(names(), std::set<std::string>{"h"});
  EXPECT_EQ(volume().trash_seconds(), 10u);
}

TEST_F(Trash, AFullStoreGetsItsSpaceBackFromTheOldest) {
  for (const char* name : {"a", "b", "c"}) {
    old_file(name, 1 << 20);
    ASSERT_TRUE(user.unlink(1, name).ok());
  }
  let_pass(kMinute);
  pb::RegisterTargetsRequest request;
  pb::Target* target = request.add_targets();
  target->set_id(1);
  target->set_endpoint("here");
  target->set_weight(1);
  target->set_capacity_bytes(40 << 20);  // a twentieth: 2 MiB
  target->set_free_bytes((1 << 20) + 1);
  ASSERT_TRUE(site.ask(&MetaService::register_targets, request).ok());
  EXPECT_EQ(site.keep_all_house().freed_inodes(), 1u);
  EXPECT_EQ(names(), (std::set<std::string>{"b", "c"}));
  target->set_free_bytes(0);
  ASSERT_TRUE(site.ask(&MetaService::register_targets, request).ok());
  site.keep_all_house();
  EXPECT_EQ(names(), std::set<std::string>{"c"}) << "a's blocks are on their way out";
  target->set_free_bytes(3 << 20);
  ASSERT_TRUE(site.ask(&MetaService::register_targets, request).ok());
  site.remove_dead();
  site.keep_all_house();
  EXPECT_EQ(names(), std::set<std::string>{"c"});
}

TEST_F(Trash, OtherSessionsHearOfIt) {
  Client other{site, "other"};
  while (!other.attach("v").ok()) ASSERT_TRUE(user.release_lease().ok());
  const std::uint64_t inode = old_file("f");
  ASSERT_TRUE(other.beat().ok());
  ASSERT_TRUE(user.unlink(1, "f").ok());
  const pb::HeartbeatReply heard = other.beat().value();
  ASSERT_EQ(heard.unlinked_inode_size(), 1);
  EXPECT_EQ(heard.unlinked_inode(0), inode);
  site.clock.advance(site.lease * 3);
  ASSERT_TRUE(other.beat().ok());
  ASSERT_TRUE(user.beat().ok());
  EXPECT_EQ(other.beat()->unlinked_inode_size(), 0) << "not again and again";
}

TEST_F(Trash, ADeletedVolumeTakesItsTrashAlong) {
  const std::uint64_t top = user.mkdir(1, "top").value();
  old_file("f", 10, top);
  ASSERT_TRUE(user.unlink(top, "f").ok());
  ASSERT_TRUE(rmdir(1, "top").ok());
  ASSERT_TRUE(site.delete_volume("v", true).ok());
  site.keep_all_house();
  EXPECT_EQ(site.remove_dead().size(), 1u);
  site.keep_all_house();
  EXPECT_TRUE(site.rows(user.branch, Table::trashed).empty());
  EXPECT_EQ(site.total(accumulator_key(user.branch, InodeId{}, What::trash_inodes)), 0);
}

// ---- Escrow ----

class Escrow : public Trash {
 protected:
  Escrow() {
    EXPECT_TRUE(set([](pb::VolumeSettings& to) { to.set_quota_bytes(1000); }).ok());
  }
  static Result<std::uint64_t> take(Client& client, std::uint64_t wanted,
                                    std::uint64_t returned = 0) {
    pb::EscrowRequest request;
    client.fill(request.mutable_on());
    request.set_wanted(wanted);
    request.set_returned(returned);
    const pb::EscrowReply reply = SL_TRY(client.site.ask(&MetaService::escrow, request));
    EXPECT_TRUE(reply.limited());
    return reply.escrow();
  }
  Client other{site, "other"};
  void let_other_in() {
    while (!other.attach("v").ok()) ASSERT_TRUE(user.release_lease().ok());
  }
};

TEST_F(Escrow, WhatIsSetAsideIsThereForWhoHasItAndNobodyElse) {
  let_other_in();
  EXPECT_EQ(take(user, 700).value(), 700u);
  EXPECT_EQ(take(other, 700).value(), 300u);
  EXPECT_EQ(volume().live_bytes(), 0u);
  EXPECT_EQ(volume().escrow_bytes(), 1000u);
  const std::uint64_t mine = user.create(1, "mine").value();
  const std::uint64_t theirs = other.create(1, "theirs").value();
  EXPECT_TRUE(user.write(mine, 0, 700).ok());
  EXPECT_EQ(user.write(mine, 700, 1).code(), Errc::quota);
  EXPECT_TRUE(user.write(mine, 0, 700).ok()) << "over itself takes nothing";
  EXPECT_EQ(other.write(theirs, 0, 301).code(), Errc::quota);
  EXPECT_TRUE(other.write(theirs, 0, 300).ok());
  EXPECT_EQ(volume().live_bytes(), 1000u);
  EXPECT_EQ(volume().escrow_bytes(), 0u);
}

TEST_F(Escrow, WhoGetsTooLittleIsHeardByTheOthers) {
  let_other_in();
  EXPECT_EQ(take(user, 1000).value(), 1000u);
  EXPECT_FALSE(user.lease_state().wants_escrow());
  EXPECT_EQ(take(other, 100).value(), 0u);
  EXPECT_TRUE(user.lease_state().wants_escrow());
  EXPECT_FALSE(other.lease_state().wants_escrow());
  EXPECT_EQ(take(user, 0, 400).value(), 600u);
  EXPECT_EQ(take(other, 100).value(), 100u);
}

TEST_F(Escrow, ADeadSessionsPartReturns) {
  EXPECT_EQ(take(user, 600).value(), 600u);
  ASSERT_TRUE(site.close_session(user.session).ok());
  site.keep_all_house();
  EXPECT_EQ(volume().escrow_bytes(), 0u);
  ASSERT_TRUE(other.attach("v").ok());
  EXPECT_EQ(take(other, 1000).value(), 1000u);
}

TEST_F(Escrow, ACommitMayTakeFromBoth) {
  EXPECT_EQ(take(user, 100).value(), 100u);
  const std::uint64_t inode = user.create(1, "f").value();
  const pb::ReserveSlicesReply reserved = user.reserve(1).value();
  EXPECT_EQ(user.commit(inode, 0, 250, reserved.first(), reserved.batch())->escrow_taken(), 100u);
  EXPECT_EQ(volume().live_bytes(), 250u);
  EXPECT_EQ(volume().escrow_bytes(), 0u);
}

}  // namespace
}  // namespace starlane::meta
