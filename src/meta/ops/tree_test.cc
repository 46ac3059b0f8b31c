#include <gtest/gtest.h>

#include <thread>

#include "kv/mem/mem_engine.h"
#include "meta/nodes.h"
#include "meta/ops/test_volume.h"

namespace starlane::meta {
namespace {

using std::chrono::seconds;

class Tree : public testing::Test {
 protected:
  Tree() : v(engine) { make_branch(engine, BranchId{7}, head()); }
  static HeadRow head() {
    HeadRow row;
    row.epoch = 3;
    return row;
  }
  pb::Attributes at(std::uint64_t inode) { return v.attributes(inode).value(); }

  kv::mem::MemEngine engine;
  TestVolume v;
};

std::int64_t ns(const pb::Time& time) {
  return time.seconds() * 1'000'000'000 + time.nanoseconds();
}

TEST_F(Tree, CreateAndLookUp) {
  v.clock().advance(seconds(5));
  const pb::Attributes made = v.create(1, "a").value();
  EXPECT_EQ(made.mode(), 0100644u);
  EXPECT_EQ(made.nlink(), 1u);
  EXPECT_EQ(made.parent(), 1u);
  EXPECT_EQ(v.lookup(1, "a").value().SerializeAsString(), made.SerializeAsString());
  EXPECT_EQ(at(made.inode()).SerializeAsString(), made.SerializeAsString());
  EXPECT_EQ(v.create(1, "a").code(), Errc::exists);
  EXPECT_EQ(v.create(made.inode(), "b").code(), Errc::not_directory);
  EXPECT_EQ(v.create(999, "b").code(), Errc::not_found);
  EXPECT_EQ(v.lookup(1, "b").code(), Errc::not_found);
  EXPECT_EQ(v.lookup(made.inode(), "b").code(), Errc::not_directory);
}

TEST_F(Tree, Names) {
  EXPECT_EQ(v.create(1, std::string(256, 'n')).code(), Errc::name_too_long);
  EXPECT_TRUE(v.create(1, std::string(255, 'n')).ok());
  for (const std::string& bad : {std::string(), std::string("."), std::string(".."),
                                 std::string("a/b"), std::string("a\0b", 3)}) {
    EXPECT_EQ(v.create(1, bad).code(), Errc::invalid);
    EXPECT_EQ(v.mkdir(1, bad).code(), Errc::invalid);
  }
  EXPECT_TRUE(v.create(1, "\xff\xfe").ok()) << "names are bytes";
}

TEST_F(Tree, DirectoryCountsAndTimes) {
  const pb::Attributes before = at(1);
  EXPECT_EQ(before.nlink(), 2u);
  v.clock().advance(seconds(1));
  const pb::Attributes made = v.mkdir(1, "d").value();
  EXPECT_EQ(made.nlink(), 2u);
  const pb::Attributes after = at(1);
  EXPECT_EQ(after.nlink(), 3u);
  EXPECT_EQ(after.entries(), 1u);
  EXPECT_GT(after.version(), before.version());
  EXPECT_EQ(ns(after.mtime()), ns(made.btime()));
  EXPECT_EQ(ns(after.ctime()), ns(made.btime()));
  v.clock().advance(seconds(1));
  EXPECT_TRUE(v.create(made.inode(), "f").ok());
  EXPECT_EQ(v.rmdir(1, "d").code(), Errc::not_empty);
  EXPECT_EQ(v.unlink(1, "d").code(), Errc::is_directory);
  EXPECT_EQ(v.rmdir(made.inode(), "f").code(), Errc::not_directory);
  v.clock().advance(seconds(1));
  EXPECT_TRUE(v.unlink(made.inode(), "f").ok());
  EXPECT_EQ(at(made.inode()).entries(), 0u);
  EXPECT_EQ(at(made.inode()).mtime().seconds(), after.mtime().seconds() + 2);
  EXPECT_TRUE(v.rmdir(1, "d").ok());
  EXPECT_EQ(v.rmdir(1, "d").code(), Errc::not_found);
  EXPECT_EQ(at(1).nlink(), 2u);
  EXPECT_EQ(at(1).entries(), 0u);
  EXPECT_EQ(v.attributes(made.inode()).code(), Errc::not_found);
  EXPECT_EQ(v.total(What::inodes), 1);
}

TEST_F(Tree, UtimesOnADirectoryStandsUntilItsNextChange) {
  const std::uint64_t d = v.mkdir(1, "d").value().inode();
  v.clock().advance(seconds(1));
  ASSERT_TRUE(v.create(d, "x").ok());
  v.clock().advance(seconds(1));
  pb::SetAttributesRequest request;
  request.set_inode(d);
  request.mutable_mtime()->set_seconds(-100);
  const pb::Attributes set = v.set(request).value();
  EXPECT_EQ(set.mtime().seconds(), -100);
  EXPECT_EQ(at(d).mtime().seconds(), -100);
  EXPECT_EQ(set.ctime().seconds(), v.clock().wall().seconds);
  pb::SetAttributesRequest chmod;
  chmod.set_inode(d);
  chmod.set_mode(0700);
  v.clock().advance(seconds(1));
  EXPECT_EQ(v.set(chmod).value().mtime().seconds(), -100);
  v.clock().advance(seconds(1));
  ASSERT_TRUE(v.create(d, "y").ok());
  EXPECT_EQ(at(d).mtime().seconds(), v.clock().wall().seconds);
  EXPECT_EQ(at(d).entries(), 2u);
}

TEST_F(Tree, SetgidDirectoriesHandDownTheirGroup) {
  const std::uint64_t d = v.mkdir(1, "d", 02775).value().inode();
  pb::SetAttributesRequest chown;
  chown.set_inode(d);
  chown.set_gid(55);
  EXPECT_EQ(v.set(chown).value().mode() & 07777u, 02775u) << "of directories the bit stays";
  EXPECT_EQ(v.create(d, "f").value().gid(), 55u);
  const pb::Attributes sub = v.mkdir(d, "s").value();
  EXPECT_EQ(sub.gid(), 55u);
  EXPECT_EQ(sub.mode() & 07777u, 02755u);
}

TEST_F(Tree, ChangesOfOwnerClearPrivileges) {
  const std::uint64_t f = v.create(1, "f", 0106755).value().inode();
  pb::SetAttributesRequest chown;
  chown.set_inode(f);
  chown.set_uid(5);
  EXPECT_EQ(v.set(chown).value().mode() & 07777u, 0755u);
  const std::uint64_t g = v.create(1, "g", 0106745).value().inode();
  chown.set_inode(g);
  EXPECT_EQ(v.set(chown).value().mode() & 07777u, 02745u)
      << "setgid without group execute is mandatory locking";
  const std::uint64_t h = v.create(1, "h", 0104755).value().inode();
  pb::SetAttributesRequest truncate;
  truncate.set_inode(h);
  truncate.set_length(10);
  EXPECT_EQ(v.set(truncate).value().mode() & 07777u, 04755u) << "root keeps it";
  truncate.mutable_caller()->set_uid(1000);
  EXPECT_EQ(v.set(truncate).value().mode() & 07777u, 0755u);
}

TEST_F(Tree, LinksCountAndForgetNames) {
  const std::uint64_t d = v.mkdir(1, "d").value().inode();
  const std::uint64_t f = v.create(1, "a").value().inode();
  v.clock().advance(seconds(1));
  EXPECT_EQ(v.link(f, d, "b").value().nlink(), 2u);
  EXPECT_EQ(ns(at(f).ctime()), ns(at(d).mtime()));
  EXPECT_EQ(v.link(f, 1, "c").value().nlink(), 3u);
  EXPECT_EQ(at(f).parent(), 0u) << "of a file with several links";
  EXPECT_EQ(v.link(f, 1, "a").code(), Errc::exists);
  EXPECT_EQ(v.link(d, 1, "e").code(), Errc::not_permitted);
  EXPECT_EQ(v.link(999, 1, "e").code(), Errc::not_found);
  EXPECT_EQ(v.rows(Table::name).size(), 2u);
  EXPECT_TRUE(v.unlink(1, "a").ok());  // the first name: another takes its place
  EXPECT_EQ(v.rows(Table::name).size(), 1u);
  EXPECT_TRUE(v.unlink(1, "c").ok());
  EXPECT_EQ(at(f).nlink(), 1u);
  EXPECT_EQ(at(f).parent(), d);
  EXPECT_EQ(v.rows(Table::name).size(), 0u);
  EXPECT_TRUE(v.unlink(d, "b", true).ok());
  EXPECT_EQ(at(f).nlink(), 0u);
  EXPECT_EQ(v.link(f, 1, "again").code(), Errc::not_found);
  EXPECT_EQ(v.total(What::inodes), 2);
}

TEST_F(Tree, LinksHaveALimit) {
  TestVolume few(engine, BranchId{7}, {.max_links = 3});
  const std::uint64_t f = few.create(1, "f").value().inode();
  EXPECT_TRUE(few.link(f, 1, "1").ok());
  EXPECT_TRUE(few.link(f, 1, "2").ok());
  EXPECT_EQ(few.link(f, 1, "3").code(), Errc::too_many_links);
  EXPECT_EQ(at(f).nlink(), 3u);
}

TEST_F(Tree, SymlinksAndNodes) {
  const pb::Attributes link = v.symlink(1, "l", "target/..").value();
  EXPECT_EQ(link.length(), 9u);
  pb::NodeRequest request;
  *request.mutable_on() = v.on;
  request.set_inode(link.inode());
  pb::XattrReply reply;
  ASSERT_TRUE(op_read_link(v.context(), v.call, request, &reply).ok());
  EXPECT_EQ(reply.value(), "target/..");
  request.set_inode(1);
  EXPECT_EQ(op_read_link(v.context(), v.call, request, &reply).code(), Errc::invalid);
  EXPECT_EQ(v.symlink(1, "e", "").code(), Errc::not_found);
  EXPECT_EQ(v.symlink(1, "e", std::string(4096, 'x')).code(), Errc::name_too_long);
  pb::CreateRequest device;
  *device.mutable_on() = v.on;
  device.set_parent(1);
  device.set_name("null");
  device.set_mode(0020666);
  device.set_rdev(0x103);
  pb::NewEntry made;
  ASSERT_TRUE(op_create(v.context(), v.call, device, &made).ok());
  EXPECT_EQ(v.lookup(1, "null").value().rdev(), 0x103u);
  EXPECT_EQ(v.create(1, "d", 0040755).code(), Errc::invalid);
  EXPECT_EQ(v.create(1, "typeless", 0755).code(), Errc::invalid);
  EXPECT_EQ(v.truncate(link.inode(), 3).code(), Errc::invalid);
  EXPECT_EQ(v.truncate(1, 3).code(), Errc::is_directory);
}

TEST_F(Tree, RenameMovesAndReplaces) {
  const std::uint64_t d = v.mkdir(1, "d").value().inode();
  const std::uint64_t f = v.create(1, "f").value().inode();
  const std::uint64_t g = v.create(d, "g").value().inode();
  v.clock().advance(seconds(1));
  const pb::RenameReply moved = v.rename(1, "f", d, "g").value();
  EXPECT_EQ(moved.moved().inode(), f);
  EXPECT_EQ(moved.moved().parent(), d);
  EXPECT_EQ(moved.replaced().inode(), g);
  EXPECT_EQ(moved.replaced().nlink(), 0u);
  EXPECT_EQ(at(f).ctime().seconds(), v.clock().wall().seconds);
  EXPECT_EQ(v.lookup(d, "g").value().inode(), f);
  EXPECT_EQ(v.lookup(1, "f").code(), Errc::not_found);
  EXPECT_EQ(at(1).entries(), 1u);
  EXPECT_EQ(at(d).entries(), 1u);
  EXPECT_EQ(v.rows(Table::unlinked).size(), 1u);
  EXPECT_EQ(v.rename(1, "nothing", d, "h").code(), Errc::not_found);
  EXPECT_EQ(v.rename(d, "g", 1, "d").code(), Errc::is_directory);
  EXPECT_EQ(v.rename(1, "d", d, "g").code(), Errc::not_directory);
  EXPECT_EQ(v.rename(d, "g", d, "g", 1).code(), Errc::exists);
  EXPECT_TRUE(v.rename(d, "g", d, "g").ok());
  EXPECT_EQ(v.rename(d, "g", 1, "x", 8).code(), Errc::invalid);
}

TEST_F(Tree, RenameOfTwoNamesOfOneFileDoesNothing) {
  const std::uint64_t f = v.create(1, "a").value().inode();
  ASSERT_TRUE(v.link(f, 1, "b").ok());
  EXPECT_TRUE(v.rename(1, "a", 1, "b").ok());
  EXPECT_TRUE(v.lookup(1, "a").ok());
  EXPECT_EQ(at(f).nlink(), 2u);
  EXPECT_TRUE(v.rename(1, "b", 1, "c").ok());  // the further name moves along
  EXPECT_TRUE(v.rename(1, "a", 1, "d").ok());
  EXPECT_TRUE(v.unlink(1, "d").ok());
  EXPECT_TRUE(v.unlink(1, "c").ok());
  EXPECT_TRUE(v.rows(Table::name).empty());
}

TEST_F(Tree, DirectoriesMoveButNotIntoThemselves) {
  const std::uint64_t a = v.mkdir(1, "a").value().inode();
  const std::uint64_t b = v.mkdir(a, "b").value().inode();
  const std::uint64_t c = v.mkdir(b, "c").value().inode();
  EXPECT_EQ(v.rename(1, "a", c, "x").code(), Errc::invalid);
  EXPECT_EQ(v.rename(1, "a", a, "x").code(), Errc::invalid);
  EXPECT_EQ(v.rename(a, "b", 1, "a").code(), Errc::not_empty);
  EXPECT_TRUE(v.rename(b, "c", 1, "c").ok());
  EXPECT_EQ(at(1).nlink(), 4u);
  EXPECT_EQ(at(b).nlink(), 2u);
  EXPECT_EQ(at(c).parent(), 1u);
  EXPECT_TRUE(v.rename(a, "b", 1, "c").ok());  // over an empty directory
  EXPECT_EQ(v.attributes(c).code(), Errc::not_found);
  EXPECT_EQ(v.lookup(1, "c").value().inode(), b);
  EXPECT_EQ(at(1).nlink(), 4u);
  EXPECT_EQ(at(1).entries(), 2u);
  EXPECT_EQ(v.total(What::inodes), 3);
}

TEST_F(Tree, RenameNoReplaceAndExchange) {
  const std::uint64_t a = v.mkdir(1, "a").value().inode();
  const std::uint64_t d = v.mkdir(a, "d").value().inode();
  const std::uint64_t f = v.create(1, "f").value().inode();
  EXPECT_EQ(v.rename(1, "f", a, "d", 1).code(), Errc::exists);
  EXPECT_EQ(v.rename(1, "f", a, "none", 2).code(), Errc::not_found);
  EXPECT_EQ(v.rename(1, "a", a, "d", 2).code(), Errc::invalid);
  EXPECT_EQ(v.rename(a, "d", 1, "a", 2).code(), Errc::invalid);
  const pb::RenameReply swapped = v.rename(1, "f", a, "d", 2).value();
  EXPECT_EQ(swapped.moved().parent(), a);
  EXPECT_EQ(swapped.replaced().inode(), d);
  EXPECT_EQ(v.lookup(1, "f").value().inode(), d);
  EXPECT_EQ(v.lookup(a, "d").value().inode(), f);
  EXPECT_EQ(at(1).nlink(), 4u);
  EXPECT_EQ(at(a).nlink(), 2u);
  EXPECT_EQ(at(a).entries(), 1u);
}

TEST_F(Tree, ListsInPagesWithAttributes) {
  std::vector<std::string> names;
  for (int i = 0; i < 10; ++i) names.push_back("n" + std::to_string(i));
  for (const std::string& name : names)
    ASSERT_TRUE(name == "n4" ? v.mkdir(1, name).ok() : v.create(1, name).ok());
  EXPECT_EQ(v.list(1).value(), names);
  const std::uint64_t d = v.lookup(1, "n4").value().inode();
  ASSERT_TRUE(v.mkdir(d, "sub").ok());
  pb::ReadDirectoryRequest request;
  *request.mutable_on() = v.on;
  request.set_inode(1);
  request.set_attributes(true);
  pb::ReadDirectoryReply reply;
  ASSERT_TRUE(op_read_directory(v.context(), v.call, request, &reply).ok());
  EXPECT_TRUE(reply.end());
  for (const pb::DirectoryEntry& entry : reply.entries()) {
    EXPECT_EQ(entry.attributes().SerializeAsString(),
              v.lookup(1, entry.name()).value().SerializeAsString());
    EXPECT_EQ(entry.type(), entry.attributes().mode() >> 12);
  }
  EXPECT_EQ(reply.entries(4).attributes().nlink(), 3u);
  EXPECT_EQ(v.list(v.lookup(1, "n0").value().inode()).code(), Errc::not_directory);
}

class Xattrs : public Tree {
 protected:
  Status set(std::uint64_t inode, const std::string& name, const std::string& value,
             std::uint32_t flags = 0) {
    pb::Empty nothing;
    return op_set_xattr(v.context(), v.call, request(inode, name, value, flags), &nothing);
  }
  Result<std::string> get(std::uint64_t inode, const std::string& name) {
    pb::XattrReply reply;
    SL_TRY(op_get_xattr(v.context(), v.call, request(inode, name, "", 0), &reply));
    return reply.value();
  }
  Status remove(std::uint64_t inode, const std::string& name) {
    pb::Empty nothing;
    return op_remove_xattr(v.context(), v.call, request(inode, name, "", 0), &nothing);
  }
  std::size_t count(std::uint64_t inode) {
    pb::NodeRequest node;
    *node.mutable_on() = v.on;
    node.set_inode(inode);
    pb::XattrReply reply;
    EXPECT_TRUE(op_list_xattrs(v.context(), v.call, node, &reply).ok());
    return static_cast<std::size_t>(reply.names_size());
  }

 private:
  pb::XattrRequest request(std::uint64_t inode, const std::string& name, const std::string& value,
                           std::uint32_t flags) {
    pb::XattrRequest made;
    *made.mutable_on() = v.on;
    made.set_inode(inode);
    made.set_name(name);
    made.set_value(value);
    made.set_flags(flags);
    return made;
  }
};

TEST_F(Xattrs, SetGetListRemove) {
  const std::uint64_t f = v.create(1, "f").value().inode();
  v.clock().advance(seconds(1));
  EXPECT_EQ(get(f, "user.a").code(), Errc::no_attribute);
  EXPECT_TRUE(set(f, "user.a", "1").ok());
  EXPECT_EQ(at(f).ctime().seconds(), v.clock().wall().seconds);
  EXPECT_EQ(set(f, "user.a", "2", 1).code(), Errc::exists);
  EXPECT_EQ(set(f, "user.b", "2", 2).code(), Errc::no_attribute);
  EXPECT_TRUE(set(f, "user.a", "2", 2).ok());
  EXPECT_TRUE(set(f, "user.empty", "", 1).ok());
  EXPECT_EQ(get(f, "user.a").value(), "2");
  EXPECT_EQ(get(f, "user.empty").value(), "");
  EXPECT_EQ(count(f), 2u);
  EXPECT_TRUE(remove(f, "user.a").ok());
  EXPECT_EQ(remove(f, "user.a").code(), Errc::no_attribute);
  EXPECT_EQ(count(f), 1u);
  EXPECT_EQ(get(999, "user.a").code(), Errc::not_found);
  EXPECT_EQ(set(999, "user.a", "").code(), Errc::not_found);
}

TEST_F(Xattrs, Limits) {
  const std::uint64_t f = v.create(1, "f").value().inode();
  EXPECT_EQ(set(f, "user." + std::string(251, 'x'), "").code(), Errc::range);
  EXPECT_TRUE(set(f, "user." + std::string(250, 'x'), "").ok());
  EXPECT_EQ(set(f, "", "").code(), Errc::range);
  EXPECT_EQ(set(f, "user.v", std::string(65537, 'x')).code(), Errc::too_big);
  EXPECT_TRUE(set(f, "user.v", std::string(65536, 'x')).ok());
  EXPECT_EQ(get(f, "user.v").value().size(), 65536u);
  Status last;
  int set_count = 0;
  for (; set_count < 300 && last.ok(); ++set_count) {
    last = set(f, std::to_string(1000 + set_count) + std::string(250, 'y'), "");
  }
  EXPECT_EQ(last.code(), Errc::no_space) << "what listxattr cannot return is refused";
  EXPECT_NEAR(set_count, 256, 2);
}

TEST_F(Xattrs, GoWithTheirFile) {
  const std::uint64_t d = v.mkdir(1, "d").value().inode();
  ASSERT_TRUE(set(d, "user.a", "1").ok());
  ASSERT_TRUE(v.rmdir(1, "d").ok());
  EXPECT_TRUE(v.rows(Table::xattr).empty());
}

TEST_F(Tree, StatFsIsExact) {
  ASSERT_TRUE(v.mkdir(1, "d").ok());
  const std::uint64_t f = v.create(1, "f").value().inode();
  ASSERT_TRUE(v.write(f, 1000, 5000).ok());
  pb::NodeRequest request;
  *request.mutable_on() = v.on;
  pb::StatFsReply reply;
  ASSERT_TRUE(op_stat_fs(v.context(), v.call, request, &reply).ok());
  EXPECT_EQ(reply.inodes(), 3u);
  EXPECT_EQ(reply.live_bytes(), 5000u);
}

TEST_F(Tree, QuotaIsKept) {
  edit_head(engine, BranchId{7}, [](HeadRow& row) {
    row.quota_inodes = 3;
    row.quota_bytes = 10'000;
  });
  const std::uint64_t f = v.create(1, "f").value().inode();
  ASSERT_TRUE(v.create(1, "g").ok());
  EXPECT_EQ(v.create(1, "h").code(), Errc::quota);
  EXPECT_TRUE(v.unlink(1, "g").ok());
  EXPECT_TRUE(v.create(1, "h").ok());
  EXPECT_TRUE(v.write(f, 0, 10'000).ok());
  EXPECT_EQ(v.write(f, 10'000, 1).code(), Errc::quota);
  EXPECT_TRUE(v.write(f, 5'000, 1'000).ok()) << "overwriting adds nothing";
  EXPECT_TRUE(v.truncate(f, 9'999).ok());
  EXPECT_TRUE(v.write(f, 9'999, 1).ok());
  EXPECT_EQ(v.total(What::bytes), 10'000);
}

TEST_F(Tree, OpenIsTheGate) {
  const std::uint64_t f = v.create(1, "f").value().inode();
  pb::OpenRequest request;
  *request.mutable_on() = v.on;
  request.set_inode(f);
  request.set_parent(1);
  request.set_name("f");
  pb::OpenReply reply;
  ASSERT_TRUE(op_open(v.context(), v.call, request, &reply).ok());
  EXPECT_FALSE(reply.moved());
  EXPECT_EQ(reply.attributes().inode(), f);
  ASSERT_TRUE(v.write(f, 0, 100).ok());
  const std::uint64_t version = reply.attributes().version();
  ASSERT_TRUE(op_open(v.context(), v.call, request, &reply).ok());
  EXPECT_GT(reply.attributes().version(), version);
  request.set_truncate(true);
  request.set_write(true);
  ASSERT_TRUE(op_open(v.context(), v.call, request, &reply).ok());
  EXPECT_EQ(reply.attributes().length(), 0u);
  ASSERT_TRUE(v.create(1, "g").ok());
  ASSERT_TRUE(v.rename(1, "g", 1, "f").ok());
  for (const bool truncate : {false, true}) {
    request.set_truncate(truncate);
    ASSERT_TRUE(op_open(v.context(), v.call, request, &reply).ok());
    EXPECT_TRUE(reply.moved());
  }
  request.set_name("gone");
  ASSERT_TRUE(op_open(v.context(), v.call, request, &reply).ok());
  EXPECT_TRUE(reply.moved());
}

}  // namespace
}  // namespace starlane::meta
