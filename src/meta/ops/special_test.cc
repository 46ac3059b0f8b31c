// Files without a name, whiteouts, and what immutable and append-only flags forbid.
#include <gtest/gtest.h>

#include "meta/members/fixture.h"

namespace starlane::meta {
namespace {

class Special : public testing::Test {
 protected:
  Special() {
    EXPECT_TRUE(site.create_volume("v").ok());
    EXPECT_TRUE(user.attach("v").ok());
  }
  ~Special() override { EXPECT_EQ(site.check(), std::vector<std::string>()); }

  template <typename Request, typename Reply>
  Result<Reply> ask(Status (MetaService::*method)(const Call&, const Request&, Reply*),
                    Request request) {
    user.fill(request.mutable_on());
    return site.ask(method, request);
  }
  std::uint64_t unnamed(bool linkable = true) {
    pb::CreateRequest request;
    request.set_parent(1);
    request.set_mode(0100600);
    request.set_unnamed(true);
    request.set_linkable(linkable);
    return ask(&MetaService::create, request).value().attributes().inode();
  }
  pb::Attributes at(std::uint64_t inode) {
    pb::NodeRequest request;
    request.set_inode(inode);
    return ask(&MetaService::get_attributes, request).value();
  }
  Result<pb::Attributes> look_up(const std::string& name) {
    pb::LookupRequest request;
    request.set_parent(1);
    request.set_name(name);
    const pb::NewEntry entry = SL_TRY(ask(&MetaService::lookup, request));
    return entry.attributes();
  }
  Result<pb::RenameReply> rename(const std::string& from, const std::string& to,
                                 std::uint32_t flags, std::uint64_t new_parent = 1) {
    pb::RenameRequest request;
    request.set_parent(1);
    request.set_name(from);
    request.set_new_parent(new_parent);
    request.set_new_name(to);
    request.set_flags(flags);
    request.mutable_caller()->set_uid(5);
    return ask(&MetaService::rename, request);
  }
  Status set_flags(std::uint64_t inode, std::uint32_t flags) {
    pb::SetAttributesRequest request;
    request.set_inode(inode);
    request.set_flags(flags);
    return ask(&MetaService::set_attributes, request).status();
  }
  Status set(std::uint64_t inode, const std::function<void(pb::SetAttributesRequest&)>& change) {
    pb::SetAttributesRequest request;
    request.set_inode(inode);
    change(request);
    return ask(&MetaService::set_attributes, request).status();
  }
  Status open(std::uint64_t inode, bool append, bool truncate = false) {
    pb::OpenRequest request;
    request.set_inode(inode);
    request.set_write(true);
    request.set_append(append);
    request.set_truncate(truncate);
    return ask(&MetaService::open, request).status();
  }
  Status set_xattr(std::uint64_t inode) {
    pb::XattrRequest request;
    request.set_inode(inode);
    request.set_name("user.a");
    return ask(&MetaService::set_xattr, request).status();
  }
  Status fallocate(std::uint64_t inode, std::uint32_t mode) {
    pb::FallocateRequest request;
    request.set_inode(inode);
    request.set_mode(mode);
    request.set_length(10);
    return ask(&MetaService::fallocate, request).status();
  }
  std::int64_t live(What what) { return site.total(accumulator_key(user.branch, InodeId{}, what)); }
  void let_pass(int beats, const std::vector<std::uint64_t>& held = {}) {
    for (int i = 0; i < beats; ++i) {
      site.clock.advance(site.heartbeat);
      ASSERT_TRUE(user.beat(held).ok());
      site.keep_all_house();
    }
  }

  Site site;
  Client user{site};
};

TEST_F(Special, AFileWithoutANameLivesWhileItIsHeld) {
  const std::int64_t inodes = live(What::inodes);
  const std::uint64_t file = unnamed();
  EXPECT_EQ(at(file).nlink(), 0u);
  EXPECT_TRUE(user.write(file, 0, 100).ok());
  let_pass(20, {file});
  EXPECT_EQ(at(file).length(), 100u);
  EXPECT_EQ(live(What::inodes), inodes);
  EXPECT_EQ(live(What::bytes), 0);
  let_pass(3);
  EXPECT_TRUE(site.rows(user.branch, Table::unlinked).empty());
  EXPECT_EQ(site.remove_dead().size(), 1u);
}

TEST_F(Special, AFileWithoutANameGoesWithItsSession) {
  const std::uint64_t file = unnamed();
  ASSERT_TRUE(user.write(file, 0, 100).ok());
  ASSERT_TRUE(site.close_session(user.session).ok());
  site.keep_all_house();
  site.keep_all_house();
  EXPECT_TRUE(site.rows(user.branch, Table::unlinked).empty());
  EXPECT_EQ(site.rows(user.branch, Table::inode).size(), 1u);
}

TEST_F(Special, AFileWithoutANameGetsOneAndStays) {
  const std::int64_t inodes = live(What::inodes);
  const std::uint64_t file = unnamed();
  ASSERT_TRUE(user.write(file, 0, 100).ok());
  ASSERT_TRUE(user.link(file, 1, "f").ok());
  EXPECT_EQ(at(file).nlink(), 1u);
  EXPECT_EQ(live(What::inodes), inodes + 1);
  EXPECT_EQ(live(What::bytes), 100);
  let_pass(20);
  EXPECT_EQ(look_up("f")->length(), 100u);
  ASSERT_TRUE(user.link(file, 1, "g").ok());
  ASSERT_TRUE(user.unlink(1, "f").ok());
  ASSERT_TRUE(user.unlink(1, "g").ok());
  EXPECT_EQ(user.link(file, 1, "again").code(), Errc::not_found) << "it had a name once";
}

TEST_F(Special, AFileThatMayHaveNoNameGetsNone) {
  const std::uint64_t file = unnamed(false);
  EXPECT_EQ(user.link(file, 1, "f").code(), Errc::not_found);
  pb::CreateRequest named;
  named.set_parent(1);
  named.set_name("f");
  named.set_mode(0100600);
  named.set_unnamed(true);
  EXPECT_EQ(ask(&MetaService::create, named).code(), Errc::invalid);
}

TEST_F(Special, AWhiteoutStaysAtTheOldName) {
  const std::int64_t inodes = live(What::inodes);
  const std::uint64_t file = user.create(1, "a").value();
  const std::uint64_t directory = user.mkdir(1, "d").value();
  ASSERT_TRUE(rename("a", "b", 4, directory).ok());
  const pb::Attributes left = look_up("a").value();
  EXPECT_EQ(left.mode(), 0020000u);
  EXPECT_EQ(left.rdev(), 0u);
  EXPECT_EQ(left.uid(), 5u);
  EXPECT_NE(left.inode(), file);
  EXPECT_EQ(at(1).entries(), 2u);
  EXPECT_EQ(live(What::inodes), inodes + 3);
  ASSERT_TRUE(rename("d", "e", 4).ok()) << "a directory";
  EXPECT_EQ(at(1).nlink(), 3u);
  EXPECT_EQ(at(1).entries(), 3u);
  ASSERT_TRUE(rename("d", "a", 4).ok()) << "a whiteout over a whiteout";
  EXPECT_EQ(live(What::inodes), inodes + 4);
  EXPECT_EQ(rename("a", "e", 4 | 2).code(), Errc::invalid);
  EXPECT_EQ(rename("a", "e", 4 | 1).code(), Errc::exists);
  ASSERT_TRUE(user.unlink(1, "a").ok());
}

TEST_F(Special, AnImmutableFileStaysAsItIs) {
  const std::uint64_t file = user.create(1, "f").value();
  ASSERT_TRUE(set_flags(file, kImmutable).ok());
  EXPECT_EQ(at(file).flags(), kImmutable);
  EXPECT_EQ(open(file, false).code(), Errc::not_permitted);
  EXPECT_EQ(open(file, true).code(), Errc::not_permitted);
  EXPECT_EQ(user.write(file, 0, 10).code(), Errc::not_permitted);
  EXPECT_EQ(fallocate(file, 0).code(), Errc::not_permitted);
  EXPECT_EQ(set_xattr(file).code(), Errc::not_permitted);
  EXPECT_EQ(user.link(file, 1, "g").code(), Errc::not_permitted);
  EXPECT_EQ(user.unlink(1, "f").code(), Errc::not_permitted);
  EXPECT_EQ(rename("f", "g", 0).code(), Errc::not_permitted);
  ASSERT_TRUE(user.create(1, "h").ok());
  EXPECT_EQ(rename("h", "f", 0).code(), Errc::not_permitted);
  EXPECT_EQ(rename("h", "f", 2).code(), Errc::not_permitted);
  const auto refused = [&](const std::function<void(pb::SetAttributesRequest&)>& change) {
    EXPECT_EQ(set(file, change).code(), Errc::not_permitted);
  };
  refused([](auto& r) { r.set_mode(0600); });
  refused([](auto& r) { r.set_uid(1); });
  refused([](auto& r) { r.set_length(0); });
  refused([](auto& r) { r.mutable_mtime()->set_seconds(1); });
  refused([](auto& r) { r.set_mtime_now(true); });
  ASSERT_TRUE(set_flags(file, 0).ok());
  EXPECT_TRUE(user.write(file, 0, 10).ok());
  EXPECT_TRUE(user.unlink(1, "f").ok());
  EXPECT_EQ(set_flags(file, 4).code(), Errc::unsupported);
}

TEST_F(Special, AnAppendOnlyFileOnlyGrows) {
  const std::uint64_t file = user.create(1, "f").value();
  ASSERT_TRUE(user.write(file, 0, 10).ok());
  ASSERT_TRUE(set_flags(file, kAppendOnly).ok());
  EXPECT_EQ(open(file, false).code(), Errc::not_permitted);
  EXPECT_TRUE(open(file, true).ok());
  EXPECT_EQ(open(file, true, true).code(), Errc::not_permitted);
  EXPECT_EQ(user.write(file, 9, 10).code(), Errc::not_permitted);
  EXPECT_TRUE(user.write(file, 10, 10).ok());
  EXPECT_TRUE(fallocate(file, 0).ok());
  EXPECT_EQ(fallocate(file, 3).code(), Errc::not_permitted);
  EXPECT_EQ(set(file, [](auto& r) { r.set_length(5); }).code(), Errc::not_permitted);
  EXPECT_EQ(set(file, [](auto& r) { r.mutable_mtime()->set_seconds(1); }).code(),
            Errc::not_permitted);
  EXPECT_TRUE(set(file, [](auto& r) { r.set_mtime_now(true); }).ok());
  EXPECT_EQ(user.unlink(1, "f").code(), Errc::not_permitted);
  ASSERT_TRUE(set_flags(file, 0).ok());
}

TEST_F(Special, DirectoriesKeepOrGainNames) {
  const std::uint64_t directory = user.mkdir(1, "d").value();
  ASSERT_TRUE(user.create(directory, "f").ok());
  ASSERT_TRUE(user.create(1, "g").ok());
  ASSERT_TRUE(set_flags(directory, kAppendOnly).ok());
  EXPECT_TRUE(user.create(directory, "h").ok());
  EXPECT_EQ(user.unlink(directory, "f").code(), Errc::not_permitted);
  EXPECT_EQ(rename("g", "f", 0, directory).code(), Errc::not_permitted);
  EXPECT_TRUE(rename("g", "g", 0, directory).ok());
  ASSERT_TRUE(set_flags(directory, kImmutable).ok());
  EXPECT_EQ(user.create(directory, "i").code(), Errc::not_permitted);
  EXPECT_EQ(user.unlink(directory, "f").code(), Errc::not_permitted);
  EXPECT_EQ(user.mkdir(directory, "i").code(), Errc::not_permitted);
}

TEST_F(Special, AMapIsFoundBeyondAnyHole) {
  const std::uint64_t file = user.create(1, "f").value();
  const std::uint64_t far = (std::uint64_t{1} << 57) / kChunkSize;
  ASSERT_TRUE(user.write(file, 3 * kChunkSize, 10).ok());
  ASSERT_TRUE(user.write(file, far * kChunkSize, 10).ok());
  pb::FileMapRequest request;
  request.set_inode(file);
  request.set_chunks(1);
  request.set_skip_holes(true);
  EXPECT_EQ(ask(&MetaService::file_map, request)->chunks(0).index(), 3u);
  request.set_first_chunk(4);
  EXPECT_EQ(ask(&MetaService::file_map, request)->chunks(0).index(), far);
}

}  // namespace
}  // namespace starlane::meta
