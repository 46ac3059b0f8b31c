#include "meta/library/library_rows.h"
#include "meta/members/fixture.h"

namespace starlane::meta {
namespace {

pb::ImageRequest image(const std::string& name, const std::string& version,
                       SessionId session = {}) {
  pb::ImageRequest request;
  request.set_name(name);
  request.set_version(version);
  request.set_session(session.value);
  return request;
}

TEST(Volumes, NamesHaveRules) {
  Site site;
  for (const char* good :
       {"a", "0", "a-b_c.d", "x12345678901234567890123456789012345678901234567890123456789012"}) {
    EXPECT_TRUE(site.create_volume(good).ok()) << good;
  }
  for (const char* bad : {"", "A", ".a", "-a", "_a", "a b", "a/b", "\xc3\xa4",
                          "x123456789012345678901234567890123456789012345678901234567890123"}) {
    const auto made = site.create_volume(bad);
    EXPECT_EQ(made.code(), Errc::invalid) << bad;
    EXPECT_NE(made.status().text().find("1 to 63"), std::string::npos);
  }
  EXPECT_EQ(site.create_volume("a").code(), Errc::exists);
}

TEST(Volumes, AreMadeWithARootAndNumbersOfTheirOwn) {
  Site site;
  pb::VolumeRequest request;
  request.set_name("v");
  request.set_uid(7);
  request.set_gid(8);
  request.set_mode(0700);
  request.set_quota_bytes(1000);
  const auto made = site.ask(&MetaService::volume_create, request);
  ASSERT_TRUE(made.ok());
  const auto other = site.create_volume("w");
  EXPECT_NE(made->branch(), other->branch());
  EXPECT_NE(made->view(), other->view());
  EXPECT_GT(made->view(), 0u);
  Client client(site);
  const auto attached = client.attach("v");
  ASSERT_TRUE(attached.ok());
  EXPECT_EQ(attached->view(), made->view());
  const auto root = client.attributes(1);
  ASSERT_TRUE(root.ok());
  EXPECT_EQ(root->mode(), 040700u);
  EXPECT_EQ(root->uid(), 7u);
  EXPECT_EQ(root->gid(), 8u);
  const auto got = site.ask(&MetaService::volume_get, request);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->quota_bytes(), 1000u);
  EXPECT_EQ(got->inodes(), 1u);
  EXPECT_EQ(got->sessions(), 1u);
  EXPECT_EQ(got->state(), "active");
  EXPECT_EQ(site.ask(&MetaService::volume_list, pb::Empty())->volumes_size(), 2);
  EXPECT_TRUE(site.check().empty());
  request.set_name("z");
  request.set_mode(0100000);
  EXPECT_EQ(site.ask(&MetaService::volume_create, request).code(), Errc::invalid);
}

TEST(Volumes, DeletedOnlyByForceWhileAttached) {
  Site site;
  ASSERT_TRUE(site.create_volume("v").ok());
  Client client(site);
  ASSERT_TRUE(client.attach("v").ok());
  ASSERT_TRUE(client.create(1, "f").ok());
  const Status refused = site.delete_volume("v");
  EXPECT_EQ(refused.code(), Errc::busy);
  EXPECT_NE(refused.text().find("1 session"), std::string::npos) << refused.text();
  ASSERT_TRUE(site.delete_volume("v", true).ok());
  EXPECT_NE(client.create(1, "g").code(), Errc::ok);
  EXPECT_TRUE(client.lease_state().gone());
  EXPECT_EQ(client.attach("v").code(), Errc::not_found);
  ASSERT_TRUE(client.detach().ok());
  EXPECT_EQ(client.beat()->attachments_size(), 0);
  const auto list = site.ask(&MetaService::volume_list, pb::Empty());
  ASSERT_EQ(list->volumes_size(), 1);
  EXPECT_EQ(list->volumes(0).name(), "v");
  EXPECT_EQ(list->volumes(0).state(), "deleting");
  EXPECT_TRUE(site.create_volume("v").ok()) << "the name is free at once";
  EXPECT_EQ(site.delete_volume("none").code(), Errc::not_found);
}

TEST(Images, ArePublishedFrozenAndReadOnlyAtTheServer) {
  Site site;
  Client publisher(site);
  const auto begun = site.ask(&MetaService::image_begin, image("set", "1", publisher.session));
  ASSERT_TRUE(begun.ok()) << begun.status().to_string();
  EXPECT_EQ(begun->state(), "publishing");
  Client reader(site);
  EXPECT_EQ(reader.attach_image("set", "1").code(), Errc::not_found) << "not before it is whole";
  ASSERT_TRUE(publisher.attach_image("set", "1").ok());
  const std::uint64_t inode = publisher.create(1, "f").value();
  ASSERT_TRUE(publisher.write(inode, 0, 100).ok());

  pb::ImageRequest freeze = image("set", "1", publisher.session);
  freeze.set_files(1);
  freeze.set_bytes(100);
  freeze.set_digest("d");
  ASSERT_TRUE(site.ask(&MetaService::image_freeze, freeze).ok());
  EXPECT_EQ(site.ask(&MetaService::image_freeze, freeze)->state(), "published")
      << "the same call again";
  EXPECT_EQ(publisher.create(1, "g").code(), Errc::read_only);
  EXPECT_EQ(site.ask(&MetaService::image_begin, image("set", "1", publisher.session)).code(),
            Errc::exists);

  const auto attached = reader.attach_image("set", "1");
  ASSERT_TRUE(attached.ok());
  EXPECT_TRUE(attached->frozen());
  EXPECT_FALSE(attached->exclusive());
  EXPECT_TRUE(reader.beat().ok());
  EXPECT_EQ(reader.create(1, "h").code(), Errc::read_only);
  const auto got = site.ask(&MetaService::image_get, image("set", "1"));
  EXPECT_EQ(got->files(), 1u);
  EXPECT_EQ(got->digest(), "d");
  EXPECT_EQ(site.ask(&MetaService::image_list, pb::Empty())->images_size(), 1);
  EXPECT_TRUE(site.check().empty());
}

TEST(Images, APublicationIsResumedWhenItsSessionIsOver) {
  Site site;
  Client first(site);
  Client second(site);
  const auto begun = site.ask(&MetaService::image_begin, image("set", "1", first.session));
  ASSERT_TRUE(begun.ok());
  EXPECT_EQ(site.ask(&MetaService::image_begin, image("set", "1", second.session)).code(),
            Errc::busy);
  site.clock.advance(site.lease + Milliseconds(1));
  ASSERT_TRUE(second.beat().ok());
  const auto resumed = site.ask(&MetaService::image_begin, image("set", "1", second.session));
  ASSERT_TRUE(resumed.ok()) << resumed.status().to_string();
  EXPECT_EQ(resumed->branch(), begun->branch());
  EXPECT_EQ(site.ask(&MetaService::image_freeze, image("set", "1", first.session)).code(),
            Errc::fenced);
  EXPECT_TRUE(site.ask(&MetaService::image_freeze, image("set", "1", second.session)).ok());
}

class Pins : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(site.ask(&MetaService::image_begin, image("set", "1", user.session)).ok());
    ASSERT_TRUE(user.attach_image("set", "1").ok());
    source = user.branch;
    from = user.create(1, "f").value();
    ASSERT_TRUE(user.write(from, 0, 1000).ok());
    ASSERT_TRUE(site.ask(&MetaService::image_freeze, image("set", "1", user.session)).ok());
    ASSERT_TRUE(site.create_volume("v").ok());
    ASSERT_TRUE(user.attach("v").ok());
    to = user.create(1, "copy").value();
  }
  std::uint64_t pins() { return site.ask(&MetaService::image_get, image("set", "1"))->pins(); }

  Site site;
  Client user{site};
  BranchId source;
  std::uint64_t from = 0;
  std::uint64_t to = 0;
};

TEST_F(Pins, HoldADataSetUntilTheCopiesAreGone) {
  ASSERT_TRUE(user.copy(source, from, to, 1000).ok());
  EXPECT_EQ(pins(), 1u);
  const Status refused = site.ask(&MetaService::image_delete, image("set", "1")).status();
  EXPECT_EQ(refused.code(), Errc::busy);
  EXPECT_EQ(site.ask(&MetaService::image_get, image("set", "1"))->state(), "published")
      << "and nothing changed";
  ASSERT_TRUE(user.unlink(1, "copy").ok());
  for (int i = 0; i < 3; ++i) {
    site.clock.advance(site.heartbeat);
    ASSERT_TRUE(user.beat().ok());
  }
  site.keep_all_house();
  EXPECT_EQ(pins(), 1u) << "until the dead reference is settled";
  EXPECT_TRUE(site.remove_dead().empty()) << "the slice is the data set's";
  EXPECT_EQ(pins(), 0u);
  ASSERT_TRUE(site.ask(&MetaService::image_delete, image("set", "1")).ok());
  EXPECT_EQ(site.ask(&MetaService::image_get, image("set", "1")).code(), Errc::not_found);
  EXPECT_TRUE(site.ask(&MetaService::image_begin, image("set", "1", user.session)).ok())
      << "the name is free";
  site.keep_all_house();
  EXPECT_EQ(site.remove_dead().size(), 1u);
  site.keep_all_house();
  EXPECT_FALSE(site.engine.begin()->get(head_key(source))->has_value());
  EXPECT_TRUE(site.check().empty());
}

TEST_F(Pins, ACopyThatRacesWithTheDeletionFailsOrWins) {
  ASSERT_TRUE(user.copy(source, from, to, 1000).ok());
  // As after a crash between the two steps of a deletion: it is closed, and then the pin is found.
  site.edit([&](kv::Transaction& t) -> Status {
    const auto row = SL_TRY(t.get(image_key("set", "1")));
    ImageRow changed = SL_TRY(ImageRow::decode(row->value));
    changed.state = ImageState::deleting;
    t.put(row->key, changed.encode());
    HeadRow head = SL_TRY(read_head(t, source));
    head.state = BranchState::deleting;
    t.put(head_key(source), head.encode());
    return {};
  });
  EXPECT_NE(user.copy(source, from, to, 1000).code(), Errc::ok) << "nothing more is copied from it";
  EXPECT_EQ(site.ask(&MetaService::image_delete, image("set", "1")).code(), Errc::busy);
  EXPECT_EQ(site.ask(&MetaService::image_get, image("set", "1"))->state(), "published");
  EXPECT_TRUE(user.copy(source, from, to, 1000).ok());
}

TEST(LibraryRows, NamesOfWhatIsBeingDeleted) {
  const std::string name = deleting_name(BranchId(255), "data");
  EXPECT_TRUE(is_deleting_name(name));
  EXPECT_FALSE(is_deleting_name("data"));
  EXPECT_EQ(name_before_deleting(name), "data");
  EXPECT_EQ(name_before_deleting("data"), "data");
  EXPECT_NE(name, deleting_name(BranchId(256), "data"));
  EXPECT_EQ(ImageRow::decode("x").code(), Errc::corrupt);
  EXPECT_EQ(VolumeRow::decode(VolumeRow{}.encode()).code(), Errc::corrupt)
      << "a volume has a branch";
}

TEST(LibraryRows, Golden) {
  EXPECT_EQ(VolumeRow({{}, BranchId(5), {3, 4}}).encode(), std::string("\x01\0\0\0\0\0\0\0\0\0"
                                                                       "\x05\0\0\0\0\0\0\0"
                                                                       "\x03\0\0\0\0\0\0\0"
                                                                       "\x04\0\0\0",
                                                                       30));
  ImageRow row;
  row.branch = BranchId(5);
  row.state = ImageState::published;
  row.created = {3, 4};
  row.files = 6;
  row.directories = 7;
  row.bytes = 8;
  row.source = "s";
  row.digest = "d";
  EXPECT_EQ(row.encode(), std::string("\x01\0\0\0\0\0\0\0\0\0"
                                      "\x05\0\0\0\0\0\0\0"
                                      "\x02"
                                      "\x03\0\0\0\0\0\0\0"
                                      "\x04\0\0\0"
                                      "\x06\0\0\0\0\0\0\0"
                                      "\x07\0\0\0\0\0\0\0"
                                      "\x08\0\0\0\0\0\0\0"
                                      "\x01\0\0\0"
                                      "s"
                                      "\x01\0\0\0"
                                      "d",
                                      65));
  EXPECT_EQ(deleting_name(BranchId(0x2a), "n"),
            "\x01"
            "000000000000002an");
}

}  // namespace
}  // namespace starlane::meta
