#include "meta/members/fixture.h"
#include "meta/members/member_rows.h"

namespace starlane::meta {
namespace {

std::string hex(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += "0123456789abcdef"[byte >> 4];
    out += "0123456789abcdef"[byte & 15];
  }
  return out;
}

TEST(Sessions, TheSameNonceOpensTheSameSession) {
  Site site;
  const SessionId first = site.open_session("n1");
  EXPECT_EQ(site.open_session("n1"), first);
  EXPECT_NE(site.open_session("n2"), first);
  EXPECT_NE(site.open_session(""), site.open_session(""));
  EXPECT_TRUE(site.close_session(first).ok());
  EXPECT_TRUE(site.close_session(first).ok()) << "closing twice is closing once";
  EXPECT_NE(site.open_session("n1"), first) << "a session that ended does not come back";
}

TEST(Sessions, OpeningItAgainIsASignOfLife) {
  Site site;
  const SessionId session = site.open_session("n");
  for (int i = 0; i < 8; ++i) {
    site.clock.advance(site.lease / 2);
    EXPECT_EQ(site.open_session("n"), session);
    site.keep_all_house();
  }
  EXPECT_EQ(site.open_session("n"), session);
}

TEST(Sessions, ATakenOverAttachmentFencesWhatWasOnItsWay) {
  Site site;
  ASSERT_TRUE(site.create_volume("v").ok());
  Client client(site, "n");
  ASSERT_TRUE(client.attach("v").ok());
  const std::uint64_t before = client.epoch;
  pb::AttachRequest request;
  request.set_session(client.session.value);
  request.set_volume("v");
  request.set_take_over(true);
  const auto taken = client.attach(request);
  ASSERT_TRUE(taken.ok());
  EXPECT_TRUE(taken->taken_over());
  EXPECT_TRUE(taken->exclusive());
  EXPECT_GT(client.epoch, before);
  pb::CreateRequest create;
  create.mutable_on()->set_session(client.session.value);
  create.mutable_on()->set_branch(client.branch.value);
  create.mutable_on()->set_attachment_epoch(before);
  create.set_parent(kRootInode.value);
  create.set_name("late");
  create.set_mode(0100644);
  EXPECT_EQ(site.ask(&MetaService::create, create).code(), Errc::fenced);
  create.mutable_on()->set_attachment_epoch(client.epoch);
  EXPECT_TRUE(site.ask(&MetaService::create, create).ok());

  Client other(site, "m");
  request.set_session(other.session.value);
  // In use by the first, which has the lease: asked, and not overruled by taking over.
  EXPECT_EQ(other.attach(request).code(), Errc::busy);
}

TEST(Sessions, ALostAnswerOpensNoSecondSession) {
  Site site;
  site.open_session("warm-up");  // The allocator's own commit is behind us.
  site.engine.fail_next(kv::mem::Fault::lost_answer);
  pb::OpenSessionRequest request;
  request.set_nonce("lost");
  EXPECT_EQ(site.ask(&MetaService::open_session, request).code(), Errc::unavailable);
  const SessionId session = site.open_session("lost");
  EXPECT_EQ(site.system_rows(Table::session).size(), 2u);
  EXPECT_TRUE(session);
}

TEST(Sessions, ListedWithWhatTheyHave) {
  Site site;
  ASSERT_TRUE(site.create_volume("v").ok());
  Client client(site);
  ASSERT_TRUE(client.attach("v").ok());
  site.clock.advance(Milliseconds(1500));
  const auto list = site.ask(&MetaService::list_sessions, pb::Empty());
  ASSERT_TRUE(list.ok());
  ASSERT_EQ(list->sessions_size(), 1);
  EXPECT_EQ(list->sessions(0).host(), "here");
  EXPECT_EQ(list->sessions(0).silent_ms(), 1500u);
  ASSERT_EQ(list->sessions(0).branches_size(), 1);
  EXPECT_EQ(list->sessions(0).branches(0), client.branch.value);
}

TEST(Sessions, TextsThatAreTooLongAreRefused) {
  Site site;
  pb::OpenSessionRequest request;
  request.set_host(std::string(256, 'h'));
  EXPECT_EQ(site.ask(&MetaService::open_session, request).code(), Errc::invalid);
}

TEST(Sessions, EndWhenTheirHeartbeatStandsStill) {
  Site site;
  ASSERT_TRUE(site.create_volume("v").ok());
  Client silent(site);
  Client alive(site);
  ASSERT_TRUE(silent.attach("v").ok());
  EXPECT_EQ(site.keep_house()->expired_sessions(), 0u);
  for (Milliseconds waited{0}; waited <= site.lease; waited += site.heartbeat) {
    site.clock.advance(site.heartbeat);
    ASSERT_TRUE(alive.beat().ok());
  }
  EXPECT_EQ(site.keep_house()->expired_sessions(), 1u);
  EXPECT_TRUE(alive.beat().ok());
  EXPECT_EQ(silent.beat().code(), Errc::fenced);
  EXPECT_TRUE(site.rows(attachments_of(silent.branch)).empty());
}

TEST(Sessions, EndWithTheirProcess) {
  Site site;
  ASSERT_TRUE(site.create_volume("v").ok());
  const auto attach = [&](std::uint64_t started) -> Status {
    pb::OpenSessionRequest open;
    pb::Process* process = open.mutable_process();
    process->set_space(this_process().space);
    process->set_pid(this_process().pid);
    process->set_started(started);
    const auto opened = site.ask(&MetaService::open_session, open);
    EXPECT_TRUE(opened.ok());
    pb::AttachRequest request;
    request.set_session(opened->session());
    request.set_volume("v");
    return site.ask(&MetaService::attach, request).status();
  };
  EXPECT_TRUE(attach(this_process().started - 1).ok()) << "of one that had this number before";
  EXPECT_TRUE(attach(this_process().started).ok()) << "that one's lease is nobody's";
  EXPECT_EQ(attach(this_process().started).code(), Errc::busy) << "this one lives";
}

TEST(Sessions, AServerThatJustStartedGivesEverybodyALeaseTime) {
  Site site;
  const SessionId session = site.open_session();
  site.clock.advance(std::chrono::hours(1));
  Server second(site.engine, site.clock, {});
  pb::HousekeepingReply reply;
  ASSERT_TRUE(second.housekeeping({}, {}, &reply).ok());
  EXPECT_EQ(reply.expired_sessions(), 0u) << "it has not watched long enough to know";
  pb::HeartbeatRequest beat;
  beat.set_session(session.value);
  EXPECT_TRUE(site.ask(&MetaService::heartbeat, beat).ok());
}

TEST(Sessions, RenewalsAreNotFlushed) {
  Site site;
  const SessionId session = site.open_session();
  const int syncs = site.engine.disk().syncs();
  pb::HeartbeatRequest beat;
  beat.set_session(session.value);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(site.ask(&MetaService::heartbeat, beat).ok());
  EXPECT_EQ(site.engine.disk().syncs(), syncs);
}

TEST(Sessions, APausedWriterIsFenced) {
  Site site;
  ASSERT_TRUE(site.create_volume("v").ok());
  Client writer(site);
  ASSERT_TRUE(writer.attach("v").ok());
  const auto inode = writer.create(1, "f");
  ASSERT_TRUE(inode.ok());
  const auto reserved = writer.reserve(1);
  ASSERT_TRUE(reserved.ok());
  ASSERT_TRUE(site.keep_house().ok());
  site.clock.advance(site.lease * 2);
  EXPECT_EQ(site.keep_house()->expired_sessions(), 1u);
  EXPECT_EQ(writer.commit(*inode, 0, 100, reserved->first(), reserved->batch()).code(),
            Errc::fenced);
  EXPECT_EQ(writer.create(1, "g").code(), Errc::fenced);
  EXPECT_EQ(writer.reserve(1).code(), Errc::fenced);
  EXPECT_TRUE(site.check().empty());
}

TEST(Leases, OneSessionAloneIsExclusive) {
  Site site;
  ASSERT_TRUE(site.create_volume("v").ok());
  Client a(site);
  const auto attached = a.attach("v");
  ASSERT_TRUE(attached.ok());
  EXPECT_TRUE(attached->exclusive());
  EXPECT_FALSE(attached->frozen());
  const auto again = a.attach("v");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->attachment_epoch(), attached->attachment_epoch())
      << "the same call, the same answer";
  EXPECT_TRUE(again->exclusive());
  EXPECT_TRUE(a.lease_state().exclusive());
}

TEST(Leases, ASecondSessionWaitsUntilTheFirstGivesItUp) {
  Site site;
  ASSERT_TRUE(site.create_volume("v").ok());
  Client a(site);
  Client b(site);
  ASSERT_TRUE(a.attach("v").ok());
  EXPECT_FALSE(a.lease_state().recalled());
  const auto refused = b.attach("v");
  EXPECT_EQ(refused.code(), Errc::busy);
  EXPECT_NE(refused.status().text().find("volume v"), std::string::npos) << refused.status().text();
  EXPECT_TRUE(a.lease_state().exclusive());
  EXPECT_TRUE(a.lease_state().recalled());
  EXPECT_TRUE(a.create(1, "f").ok()) << "it still writes while it is asked";
  EXPECT_EQ(b.attach("v").code(), Errc::busy);
  ASSERT_TRUE(a.release_lease().ok());
  const auto attached = b.attach("v");
  ASSERT_TRUE(attached.ok()) << attached.status().to_string();
  EXPECT_FALSE(attached->exclusive());
  EXPECT_FALSE(a.lease_state().exclusive());
  EXPECT_FALSE(b.lease_state().exclusive());
  EXPECT_TRUE(a.create(1, "g").ok());
  EXPECT_TRUE(b.create(1, "h").ok());
}

TEST(Leases, ALiveHolderThatDoesNotAnswerIsOverruledAfterTheLeaseTime) {
  Site site;
  ASSERT_TRUE(site.create_volume("v").ok());
  Client a(site);
  Client b(site);
  ASSERT_TRUE(a.attach("v").ok());
  Milliseconds waited{0};
  while (!b.attach("v").ok()) {
    ASSERT_LE(waited, site.lease + site.heartbeat);
    site.clock.advance(site.heartbeat);
    waited += site.heartbeat;
    ASSERT_TRUE(a.beat().ok());
  }
  EXPECT_GE(waited, site.lease);
  EXPECT_FALSE(a.lease_state().exclusive());
  EXPECT_TRUE(a.create(1, "f").ok()) << "its writes go on: it lost the lease, not the volume";
}

TEST(Leases, ADeadHolderIsEndedByWhoeverWaits) {
  Site site;
  ASSERT_TRUE(site.create_volume("v").ok());
  Client a(site);
  Client b(site);
  ASSERT_TRUE(a.attach("v").ok());
  EXPECT_EQ(b.attach("v").code(), Errc::busy);
  site.clock.advance(site.lease + Milliseconds(1));
  const auto attached = b.attach("v");
  ASSERT_TRUE(attached.ok()) << attached.status().to_string();
  EXPECT_TRUE(attached->exclusive()) << "nobody else is there";
  EXPECT_EQ(a.create(1, "f").code(), Errc::fenced);
}

TEST(Leases, ComesBackToTheOneThatIsLeft) {
  Site site;
  ASSERT_TRUE(site.create_volume("v").ok());
  Client a(site);
  Client b(site);
  ASSERT_TRUE(a.attach("v").ok());
  EXPECT_EQ(b.attach("v").code(), Errc::busy);
  ASSERT_TRUE(a.release_lease().ok());
  ASSERT_TRUE(b.attach("v").ok());
  ASSERT_TRUE(a.detach().ok());
  EXPECT_TRUE(b.lease_state().exclusive());
}

TEST(Leases, DoesNotComeBackWhileSomebodyWaits) {
  Site site;
  ASSERT_TRUE(site.create_volume("v").ok());
  Client a(site);
  Client b(site);
  ASSERT_TRUE(a.attach("v").ok());
  EXPECT_EQ(b.attach("v").code(), Errc::busy);
  ASSERT_TRUE(a.release_lease().ok());
  site.clock.advance(site.heartbeat);
  EXPECT_FALSE(a.lease_state().exclusive());
  EXPECT_TRUE(b.attach("v").ok());
}

TEST(Leases, AReaderAttachesWithoutWriting) {
  Site site;
  ASSERT_TRUE(site.create_volume("v").ok());
  Client a(site);
  ASSERT_TRUE(a.attach("v", true).ok());
  EXPECT_EQ(a.create(1, "f").code(), Errc::read_only);
}

TEST(Attach, SaysWhatDoesNotExist) {
  Site site;
  Client a(site);
  EXPECT_EQ(a.attach("none").code(), Errc::not_found);
  EXPECT_EQ(a.attach_image("none", "1").code(), Errc::not_found);
  EXPECT_EQ(a.attach(pb::AttachRequest()).code(), Errc::invalid);
  ASSERT_TRUE(site.create_volume("v").ok());
  ASSERT_TRUE(site.close_session(a.session).ok());
  EXPECT_EQ(a.attach("v").code(), Errc::fenced);
}

TEST(Heartbeat, TellsWhatOthersUnlinkedAndPinsWhatIsHeld) {
  Site site;
  ASSERT_TRUE(site.create_volume("v").ok());
  Client a(site);
  Client b(site);
  ASSERT_TRUE(a.attach("v").ok());
  ASSERT_EQ(b.attach("v").code(), Errc::busy);
  ASSERT_TRUE(a.release_lease().ok());
  ASSERT_TRUE(b.attach("v").ok());
  const std::uint64_t inode = a.create(1, "f").value();
  ASSERT_TRUE(a.write(inode, 0, 1000).ok());
  ASSERT_TRUE(b.beat().ok());
  ASSERT_TRUE(a.unlink(1, "f").ok());
  const auto told = b.beat();
  ASSERT_TRUE(told.ok());
  ASSERT_EQ(told->unlinked_inode_size(), 1);
  EXPECT_EQ(told->unlinked_inode(0), inode);
  EXPECT_EQ(told->unlinked_branch(0), b.branch.value);
  ASSERT_TRUE(b.beat({inode}).ok());
  for (Milliseconds waited{0}; waited <= 4 * site.lease; waited += site.heartbeat) {
    site.clock.advance(site.heartbeat);
    ASSERT_TRUE(a.beat().ok());
    ASSERT_TRUE(b.beat({inode}).ok());
    EXPECT_EQ(site.keep_all_house().freed_inodes(), 0u);
  }
  EXPECT_TRUE(b.attributes(inode).ok());
  ASSERT_TRUE(b.beat().ok());
  EXPECT_EQ(site.keep_all_house().freed_inodes(), 1u);
  EXPECT_EQ(b.attributes(inode).code(), Errc::not_found);
  EXPECT_EQ(site.remove_dead().size(), 1u);
  EXPECT_TRUE(site.check().empty());
}

TEST(Heartbeat, ForgetsOutcomesThatNobodyWillAskFor) {
  Site site;
  ASSERT_TRUE(site.create_volume("v").ok());
  Client a(site);
  ASSERT_TRUE(a.attach("v").ok());
  for (std::uint64_t i = 1; i <= 10; ++i) ASSERT_TRUE(a.create(1, "f" + std::to_string(i), i).ok());
  EXPECT_EQ(site.rows(a.branch, Table::outcome).size(), 10u);
  ASSERT_TRUE(a.beat({}, 8).ok());
  EXPECT_EQ(site.rows(a.branch, Table::outcome).size(), 3u);
  const auto again = a.create(1, "f9", 9);
  EXPECT_TRUE(again.ok()) << "answered from its outcome";
  EXPECT_EQ(a.create(1, "f9", 11).code(), Errc::exists);
}

TEST(Heartbeat, RefusesLopsidedLists) {
  Site site;
  Client a(site);
  pb::HeartbeatRequest request;
  request.set_session(a.session.value);
  request.add_held_inode(1);
  EXPECT_EQ(site.ask(&MetaService::heartbeat, request).code(), Errc::invalid);
}

pb::RegisterTargetsRequest one_target(std::uint32_t id, std::uint32_t weight,
                                      std::uint64_t capacity) {
  pb::RegisterTargetsRequest request;
  pb::Target* target = request.add_targets();
  target->set_id(id);
  target->set_weight(weight);
  target->set_capacity_bytes(capacity);
  target->set_endpoint("unix:/x");
  target->set_state("up");
  return request;
}

TEST(Targets, TheEpochGrowsWithChangesOnly) {
  Site site;
  EXPECT_EQ(site.ask(&MetaService::cluster_map, pb::Empty())->epoch(), 0u);
  EXPECT_EQ(site.ask(&MetaService::register_targets, one_target(2, 10, 100))->epoch(), 1u);
  EXPECT_EQ(site.ask(&MetaService::register_targets, one_target(2, 10, 100))->epoch(), 1u);
  EXPECT_EQ(site.ask(&MetaService::register_targets, one_target(2, 10, 200))->epoch(), 1u)
      << "capacity moves no data";
  EXPECT_EQ(site.ask(&MetaService::register_targets, one_target(1, 10, 100))->epoch(), 2u);
  const auto map = site.ask(&MetaService::cluster_map, pb::Empty());
  ASSERT_EQ(map->targets_size(), 2);
  EXPECT_EQ(map->targets(0).id(), 1u);
  EXPECT_EQ(map->targets(1).capacity_bytes(), 200u);
  Client a(site);
  EXPECT_EQ(a.beat()->map_epoch(), 2u);
  EXPECT_EQ(site.ask(&MetaService::register_targets, one_target(0, 1, 1)).code(), Errc::invalid);
  pb::RegisterTargetsRequest strange = one_target(3, 1, 1);
  strange.mutable_targets(0)->set_state("tired");
  EXPECT_EQ(site.ask(&MetaService::register_targets, strange).code(), Errc::invalid);
}

TEST(MemberRows, SurviveEncodingAndRefuseDamage) {
  const SessionRow session{{}, {5, 6}, "host", "purpose", "nonce"};
  const auto decoded = SessionRow::decode(session.encode());
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->host + decoded->purpose + decoded->nonce, "hostpurposenonce");
  MapRow map;
  map.header.epoch = 9;
  map.targets = {{1, 2, 0, 3, "e", "d"}, {4, 5, 2, 6, "", ""}};
  EXPECT_EQ(MapRow::decode(map.encode())->targets, map.targets);
  const auto every_cut = [](const std::string& whole, const auto& readable) {
    for (std::size_t cut = 0; cut < whole.size(); ++cut)
      EXPECT_FALSE(readable(whole.substr(0, cut))) << cut;
  };
  every_cut(session.encode(),
            [](const std::string& value) { return SessionRow::decode(value).ok(); });
  every_cut(map.encode(), [](const std::string& value) { return MapRow::decode(value).ok(); });
  every_cut(AttachmentRow{}.encode(),
            [](const std::string& value) { return AttachmentRow::decode(value).ok(); });
  AttachmentRow odd;
  odd.lease = static_cast<Lease>(9);
  EXPECT_EQ(AttachmentRow::decode(odd.encode()).code(), Errc::corrupt);
}

TEST(MemberRows, Golden) {
  // format 1, flags, epoch; then the fields.
  EXPECT_EQ(hex(NumberRow{{}, 0x0102}.encode()),
            "01000000000000000000"
            "0201000000000000");
  EXPECT_EQ(hex(AttachmentRow{{kAttachedReadOnly, 7}, Lease::recalled, 1, 2, {3, 4}}.encode()),
            "01010700000000000000"
            "02"
            "0100000000000000"
            "0200000000000000"
            "0300000000000000"
            "04000000");
  EXPECT_EQ(hex(AttachedByRow{{kAttachmentGone, 7}}.encode()), "01010700000000000000");
  EXPECT_EQ(hex(SessionRow{{}, {3, 4}, "h", "p", ""}.encode()),
            "01000000000000000000"
            "0300000000000000"
            "04000000"
            "01000000"
            "68"
            "01000000"
            "70"
            "00000000");
  MapRow map;
  map.header.epoch = 9;
  map.targets = {{1, 2, 0, 3, "e", ""}};
  EXPECT_EQ(hex(map.encode()),
            "01000900000000000000"
            "01000000"
            "01000000"
            "02000000"
            "00"
            "0300000000000000"
            "01000000"
            "65"
            "00000000");
}

TEST(Heartbeat, ForgetsOldReservationsOfWhichAllIsInFiles) {
  Site site;
  ASSERT_TRUE(site.create_volume("v").ok());
  Client a(site);
  ASSERT_TRUE(a.attach("v").ok());
  const std::uint64_t inode = a.create(1, "f").value();
  const auto open = a.reserve(1);
  ASSERT_TRUE(open.ok());
  for (int i = 0; i < 2100; ++i) ASSERT_TRUE(a.write(inode, 0, 10).ok());
  for (int i = 0; i < 8; ++i) {
    site.clock.advance(site.heartbeat);
    ASSERT_TRUE(a.beat().ok());
  }
  EXPECT_EQ(site.rows(a.branch, Table::reserved).size(), 2049u)
      << "the newest, and the one that is not used up";
  EXPECT_TRUE(a.commit(inode, 0, 10, open->first(), open->batch()).ok());
}

}  // namespace
}  // namespace starlane::meta
