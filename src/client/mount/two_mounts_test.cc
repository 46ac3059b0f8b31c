// Two hosts with one volume: close-to-open, leases and their recall, sessions that end, servers
// that are away.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "client/mount/host_fixture.h"

namespace starlane::client::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class TwoMounts : public ::testing::Test {
 protected:
  TwoMounts() { cluster.make_volume("v"); }

  /// Waits for what other threads do; the test's time limit is the limit.
  template <typename Condition>
  static void until(Condition condition) {
    while (!condition()) std::this_thread::sleep_for(milliseconds(2));
  }

  Cluster cluster;
  Host a{cluster, "a"};
  Host b{cluster, "b"};
};

TEST_F(TwoMounts, ASecondAttachGetsWhatTheFirstWrote) {
  const std::uint64_t handle = *a.create("/volumes/v/f");
  ASSERT_TRUE(a.pwrite(handle, 0, "not closed yet").ok());
  // The lease is recalled, and given up only when all is committed.
  EXPECT_EQ(*b.read_file("/volumes/v/f"), "not closed yet");
  ASSERT_TRUE(a.close(handle).ok());
}

TEST_F(TwoMounts, WhatIsClosedIsSeenByTheNextOpen) {
  ASSERT_TRUE(a.write_file("/volumes/v/f", "first").ok());
  ASSERT_EQ(*b.read_file("/volumes/v/f"), "first");
  for (int round = 0; round < 20; ++round) {
    Host& writer = round % 2 == 0 ? a : b;
    Host& reader = round % 2 == 0 ? b : a;
    const std::string bytes(static_cast<std::size_t>(round + 1) * 7,
                            static_cast<char>('a' + round));
    ASSERT_TRUE(writer.write_file("/volumes/v/f", bytes).ok());
    ASSERT_EQ(*reader.read_file("/volumes/v/f"), bytes) << round;
    EXPECT_FALSE(reader.last_open.keep_cache) << round;
    ASSERT_EQ(*reader.read_file("/volumes/v/f"), bytes);
    EXPECT_TRUE(reader.last_open.keep_cache) << round;
  }
}

TEST_F(TwoMounts, TheKernelIsToldBeforeTheOpenIsAnswered) {
  ASSERT_TRUE(a.write_file("/volumes/v/f", "one").ok());
  ASSERT_TRUE(b.read_file("/volumes/v/f").ok());
  const Node node = *b.walk("/volumes/v/f");
  ASSERT_TRUE(a.write_file("/volumes/v/f", "longer than before").ok());
  const int before = b.notices.of(node);
  const auto reply = b.vfs().open(b.caller(), node, O_RDONLY);
  ASSERT_TRUE(reply.ok());
  EXPECT_GT(b.notices.of(node), before);
  EXPECT_EQ(b.vfs().get_attributes(b.caller(), node, std::nullopt)->stat.length, 18u);
  ASSERT_TRUE(b.close(reply->handle).ok());
  EXPECT_GT(b.incarnations.remote_changes, 0);
}

TEST_F(TwoMounts, RenamedIntoPlaceIsSeenByTheNextOpen) {
  ASSERT_TRUE(a.write_file("/volumes/v/checkpoint", "old").ok());
  ASSERT_EQ(*b.read_file("/volumes/v/checkpoint"), "old");
  const Node old = *b.walk("/volumes/v/checkpoint");
  ASSERT_TRUE(a.write_file("/volumes/v/tmp", "new").ok());
  ASSERT_TRUE(a.rename("/volumes/v/tmp", "/volumes/v/checkpoint").ok());
  EXPECT_EQ(b.vfs().open(b.caller(), old, O_RDONLY).code(), Errc::stale_handle);
  EXPECT_EQ(*b.read_file("/volumes/v/checkpoint"), "new");
}

TEST_F(TwoMounts, ARelookThatFindsNothingServesNoLaterOpen) {
  ASSERT_TRUE(a.write_file("/volumes/v/journal", "first").ok());
  const Node first = *a.walk("/volumes/v/journal");
  ASSERT_TRUE(b.unlink("/volumes/v/journal").ok());
  ASSERT_EQ(a.vfs().open(a.caller(), first, O_RDWR).code(), Errc::stale_handle);
  ASSERT_EQ(a.walk("/volumes/v/journal").code(), Errc::not_found);
  ASSERT_TRUE(b.write_file("/volumes/v/journal", "second").ok());
  const Node second = *a.walk("/volumes/v/journal");
  ASSERT_TRUE(b.unlink("/volumes/v/journal").ok());
  EXPECT_EQ(a.vfs().open(a.caller(), second, O_RDWR).code(), Errc::stale_handle);
}

TEST_F(TwoMounts, ANewNameIsFoundAtOnce) {
  ASSERT_TRUE(a.stat("/volumes/v").ok());
  ASSERT_EQ(b.stat("/volumes/v/f").code(), Errc::not_found);
  ASSERT_TRUE(a.write_file("/volumes/v/f", "x").ok());
  EXPECT_EQ(*b.read_file("/volumes/v/f"), "x");
}

TEST_F(TwoMounts, AbsencePromisedUnderTheLeaseIsKept) {
  ASSERT_EQ(a.stat("/volumes/v/f").code(), Errc::not_found);
  const EntryReply absent = *a.vfs().lookup(a.caller(), *a.walk("/volumes/v"), "f");
  ASSERT_GT(absent.entry_valid, Nanoseconds(0));  // a's kernel believes it for so long
  std::thread other([&] { EXPECT_TRUE(b.write_file("/volumes/v/f", "x").ok()); });
  const Nanoseconds asked = system_clock().boot();
  other.join();
  EXPECT_GE(system_clock().boot() - asked, absent.entry_valid - milliseconds(50));
  EXPECT_EQ(*a.read_file("/volumes/v/f"), "x");
}

TEST_F(TwoMounts, TruncatingAReplacedNameSparesTheOldFile) {
  ASSERT_TRUE(a.write_file("/volumes/v/f", "").ok());
  ASSERT_TRUE(b.write_file("/volumes/v/g", "the new one").ok());
  const std::uint64_t writer = *a.open("/volumes/v/f", O_RDWR);
  ASSERT_TRUE(a.pwrite(writer, 0, "not yet closed").ok());
  const Node old = *a.walk("/volumes/v/f");
  ASSERT_TRUE(b.rename("/volumes/v/g", "/volumes/v/f").ok());
  EXPECT_EQ(a.vfs().open(a.caller(), old, O_WRONLY | O_TRUNC).code(), Errc::stale_handle);
  EXPECT_EQ(*a.pread(writer, 0, 100), "not yet closed");
  ASSERT_TRUE(a.close(writer).ok());
}

TEST_F(TwoMounts, CreateOfWhatAnotherHostMadeOpensIt) {
  ASSERT_TRUE(a.stat("/volumes/v").ok());
  ASSERT_TRUE(b.write_file("/volumes/v/f", "from b").ok());
  const std::uint64_t handle = *a.create("/volumes/v/f", O_RDWR | O_CREAT);
  EXPECT_EQ(*a.pread(handle, 0, 100), "from b");
  ASSERT_TRUE(a.close(handle).ok());
  EXPECT_EQ(a.create("/volumes/v/f", O_RDWR | O_CREAT | O_EXCL).code(), Errc::exists);
  EXPECT_EQ(a.incarnations.opens, 0);
}

TEST_F(TwoMounts, UnlinkedElsewhereWhileOpenHere) {
  ASSERT_TRUE(a.write_file("/volumes/v/f", "still readable").ok());
  const std::uint64_t handle = *b.open("/volumes/v/f", O_RDONLY);
  ASSERT_TRUE(a.unlink("/volumes/v/f").ok());
  EXPECT_EQ(*b.pread(handle, 0, 100), "still readable");
  // Heartbeats pin it, so that it stays for as long as it is open.
  for (int beats = 0; beats < 6; ++beats) {
    cluster.clock.advance(seconds(10));
    a.beat();
    b.beat();
    pb::HousekeepingReply reply;
    ASSERT_TRUE(cluster.server.housekeeping({}, {}, &reply).ok());
  }
  EXPECT_EQ(*b.pread(handle, 0, 100), "still readable");
  ASSERT_TRUE(b.close(handle).ok());
  EXPECT_EQ(b.read_file("/volumes/v/f").code(), Errc::not_found);
}

TEST_F(TwoMounts, AppendsOfBothArriveWhole) {
  ASSERT_TRUE(a.write_file("/volumes/v/log", "").ok());
  ASSERT_TRUE(b.stat("/volumes/v/log").ok());
  until([&] {
    return !a.sessions()
                .attach({.volume = "v", .image_name = {}, .image_version = {}}, 0)
                .value()
                ->exclusive_since(cluster.clock.boot());
  });
  const std::uint64_t ha = *a.open("/volumes/v/log", O_WRONLY | O_APPEND);
  EXPECT_EQ(a.last_open.mode, OpenMode::direct);
  const std::uint64_t hb = *b.open("/volumes/v/log", O_WRONLY | O_APPEND);
  std::string expected;
  for (int i = 0; i < 20; ++i) {
    const std::string line(static_cast<std::size_t>(1 + i * 3), static_cast<char>('a' + i));
    ASSERT_TRUE((i % 3 == 0 ? b : a).pwrite(i % 3 == 0 ? hb : ha, 0, line, {.append = true}).ok());
    expected += line;
  }
  ASSERT_TRUE(a.close(ha).ok());
  ASSERT_TRUE(b.close(hb).ok());
  EXPECT_EQ(*a.read_file("/volumes/v/log"), expected);
  EXPECT_EQ(*b.read_file("/volumes/v/log"), expected);
}

TEST_F(TwoMounts, TheLeaseComesBackToWhoIsAlone) {
  ASSERT_TRUE(a.write_file("/volumes/v/f", "x").ok());
  {
    Host c(cluster, "c");
    ASSERT_EQ(*c.read_file("/volumes/v/f"), "x");
    ASSERT_TRUE(c.write_file("/volumes/v/f", "from c").ok());
  }
  cluster.clock.advance(seconds(15));
  a.beat();
  EXPECT_EQ(*a.read_file("/volumes/v/f"), "from c");
  a.meta.forget_calls();
  EXPECT_EQ(*a.read_file("/volumes/v/f"), "from c");
  EXPECT_EQ(a.meta.calls("open"), 0);
}

TEST_F(TwoMounts, AnEndedSessionFailsOldWritesOnceAndGoesOn) {
  const std::uint64_t handle = *a.create("/volumes/v/f");
  ASSERT_TRUE(a.pwrite(handle, 0, "committed").ok());
  ASSERT_TRUE(a.vfs().flush(a.caller(), handle, 0).ok());
  ASSERT_TRUE(a.pwrite(handle, 0, "lost").ok());
  const SessionId before = a.sessions().id();
  cluster.end_session(before);
  EXPECT_EQ(a.vfs().flush(a.caller(), handle, 0).code(), Errc::io);
  EXPECT_TRUE(a.vfs().flush(a.caller(), handle, 0).ok());
  until([&] { return a.sessions().id() != before; });
  EXPECT_EQ(*a.read_file("/volumes/v/f"), "committed");
  ASSERT_TRUE(a.pwrite(handle, 0, "COMM").ok());
  ASSERT_TRUE(a.close(handle).ok());
  EXPECT_EQ(*b.read_file("/volumes/v/f"), "COMMitted");
}

TEST_F(TwoMounts, NamesGoOnInANewSession) {
  ASSERT_TRUE(a.mkdir("/volumes/v/d").ok());
  for (int round = 0; round < 5; ++round) {
    cluster.end_session(a.sessions().id());
    ASSERT_TRUE(a.mkdir("/volumes/v/d/" + std::to_string(round)).ok());
  }
  EXPECT_EQ(a.list("/volumes/v/d")->size(), 7u);
}

TEST_F(TwoMounts, ALeaseEndsByTime) {
  ASSERT_TRUE(a.write_file("/volumes/v/f", "x").ok());
  ASSERT_TRUE(a.read_file("/volumes/v/f").ok());
  a.meta.away(true);
  a.meta.forget_calls();
  ASSERT_TRUE(a.read_file("/volumes/v/f").ok());  // by the lease, although nobody answers
  cluster.clock.advance(seconds(21));
  const auto attached =
      a.sessions().attach({.volume = "v", .image_name = {}, .image_version = {}}, 0);
  EXPECT_FALSE(attached.value()->exclusive_since(cluster.clock.boot()));
  a.meta.away(false);
}

TEST_F(TwoMounts, AServerThatIsAwayIsWaitedForAndTheWaitCanBeInterrupted) {
  ASSERT_TRUE(a.write_file("/volumes/v/f", "x").ok());
  const Node root = *a.walk("/volumes/v");
  a.meta.away(true);
  const Caller waiting = a.caller();
  Result<EntryReply> reply(Errc::io, "");
  std::thread asker([&] { reply = a.vfs().lookup(waiting, root, "unknown"); });
  until([&] { return a.meta.calls("lookup") > 3; });
  a.vfs().interrupt(waiting.unique);
  asker.join();
  EXPECT_EQ(reply.code(), Errc::interrupted);

  std::thread other([&] { reply = a.vfs().lookup(a.caller(), root, "g"); });
  until([&] { return a.meta.calls("lookup") > 6; });
  a.meta.away(false);
  other.join();
  EXPECT_TRUE(reply.ok());
}

TEST_F(TwoMounts, AnswersOfOldQuestionsAreNotKept) {
  ASSERT_TRUE(a.stat("/volumes/v").ok());
  const Node root = *a.walk("/volumes/v");
  // While "no such file" is on its way back, another thread makes the file.
  a.meta.after("lookup", [&] {
    std::thread([&] { EXPECT_TRUE(a.close(*a.create("/volumes/v/f")).ok()); }).join();
  });
  EXPECT_FALSE(a.vfs().lookup(a.caller(), root, "f")->node.inode);
  EXPECT_TRUE(a.stat("/volumes/v/f").ok());
  // And while attributes are, another thread changes them.
  cluster.clock.advance(milliseconds(10));
  ASSERT_TRUE(a.link("/volumes/v/f", "/volumes/v/g").ok());  // both must be asked again
  a.meta.after("get_attributes", [&] {
    std::thread([&] { EXPECT_TRUE(a.truncate("/volumes/v/f", 5).ok()); }).join();
  });
  ASSERT_TRUE(a.vfs().set_xattr(a.caller(), *a.walk("/volumes/v/f"), "user.a", "b", {}).ok());
  (void)a.vfs().get_attributes(a.caller(), *a.walk("/volumes/v/g"), std::nullopt);
  EXPECT_EQ(a.stat("/volumes/v/f")->length, 5u);
}

TEST_F(TwoMounts, EqualLookupsAreAskedOnce) {
  ASSERT_TRUE(a.write_file("/volumes/v/f", "x").ok());
  ASSERT_TRUE(b.stat("/volumes/v").ok());
  const Node root = *b.walk("/volumes/v");
  b.meta.forget_calls();
  std::atomic<bool> asked{false}, answer{false};
  b.meta.before("lookup", [&] {
    asked = true;
    until([&] { return answer.load(); });
  });
  std::vector<std::thread> threads;
  std::atomic<int> found{0};
  const auto ask = [&] { found += b.vfs().lookup(b.caller(), root, "f")->node.inode ? 1 : 0; };
  threads.emplace_back(ask);
  until([&] { return asked.load(); });
  for (int i = 0; i < 4; ++i) threads.emplace_back(ask);
  std::this_thread::sleep_for(milliseconds(20));
  answer = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(found, 5);
  EXPECT_LE(b.meta.calls("lookup"), 5);
}

TEST_F(TwoMounts, ADeletedVolumeIsStaleAndTheOthersGoOn) {
  cluster.make_volume("w");
  ASSERT_TRUE(a.write_file("/volumes/v/f", "x").ok());
  ASSERT_TRUE(a.write_file("/volumes/w/f", "y").ok());
  const Node old = *a.walk("/volumes/v/f");
  cluster.delete_volume("v");
  until([&] {
    a.beat();
    return a.vfs().get_attributes(a.caller(), old, std::nullopt).code() == Errc::stale_handle;
  });
  EXPECT_EQ(*a.read_file("/volumes/w/f"), "y");
  until([&] { return !a.notices.entries().empty(); });
  EXPECT_EQ(a.notices.entries()[0], "v");
}

TEST_F(TwoMounts, StopCommitsWhatWasWritten) {
  const std::uint64_t handle = *a.create("/volumes/v/f");
  ASSERT_TRUE(a.pwrite(handle, 0, "at the end").ok());
  ASSERT_TRUE(a.stop().ok());
  EXPECT_EQ(*b.read_file("/volumes/v/f"), "at the end");
}

TEST_F(TwoMounts, PublishedIsReadOnlyAndNeverAskedAgain) {
  pb::ImageRequest request;
  request.set_name("set");
  request.set_version("1");
  request.set_session(a.sessions().id().value);
  pb::Image image;
  ASSERT_TRUE(cluster.server.image_begin({}, request, &image).ok());
  pb::AttachRequest attach;
  attach.set_session(request.session());
  attach.set_image_name("set");
  attach.set_image_version("1");
  pb::AttachReply attached;
  ASSERT_TRUE(cluster.server.attach({}, attach, &attached).ok());
  pb::CreateRequest create;
  create.mutable_on()->set_session(request.session());
  create.mutable_on()->set_branch(attached.branch());
  create.mutable_on()->set_attachment_epoch(attached.attachment_epoch());
  create.set_parent(1);
  create.set_name("f");
  create.set_mode(S_IFREG | 0444);
  pb::NewEntry entry;
  ASSERT_TRUE(cluster.server.create({}, create, &entry).ok());
  EXPECT_EQ(b.stat("/public/set").code(), Errc::not_found);  // not published yet
  pb::Image frozen;
  ASSERT_TRUE(cluster.server.image_freeze({}, request, &frozen).ok()) << "freeze";
  cluster.clock.advance(seconds(1));

  EXPECT_EQ(*b.read_file("/public/set/1/f"), "");
  EXPECT_EQ(b.open("/public/set/1/f", O_WRONLY).code(), Errc::read_only);
  EXPECT_EQ(b.create("/public/set/1/g").code(), Errc::read_only);
  EXPECT_EQ(b.unlink("/public/set/1/f").code(), Errc::read_only);
  EXPECT_EQ(b.mkdir("/public/set/1/d").code(), Errc::read_only);
  EXPECT_EQ(b.rename("/public/set/1/f", "/public/set/1/g").code(), Errc::read_only);
  EXPECT_EQ(b.truncate("/public/set/1/f", 9).code(), Errc::read_only);
  EXPECT_EQ(b.mkdir("/public/set/2").code(), Errc::not_permitted);
  EXPECT_GT(b.look("/public/set/1/f")->attributes.valid, std::chrono::hours(1));
  const Node root = *b.walk("/public/set/1");
  cluster.clock.advance(std::chrono::hours(2));
  b.meta.forget_calls();
  EXPECT_TRUE(b.vfs().lookup(b.caller(), root, "f").ok());
  EXPECT_EQ(b.meta.calls("lookup"), 0);
  EXPECT_EQ(b.list("/public")->at(2).name, "set");
}

}  // namespace
}  // namespace starlane::client::testing
