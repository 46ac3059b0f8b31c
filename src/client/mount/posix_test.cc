// One mount, call by call, over the real metadata server.
#include <gtest/gtest.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>

#include "client/mount/host_fixture.h"

namespace starlane::client::testing {
namespace {

class Posix : public ::testing::Test {
 protected:
  Posix() {
    cluster.make_volume("v");
    cluster.make_volume("w");
  }
  Cluster cluster;
  Host host{cluster};
};

std::vector<std::string> names_of(const std::vector<ListedEntry>& entries) {
  std::vector<std::string> names;
  for (const ListedEntry& entry : entries) names.push_back(entry.name);
  return names;
}

TEST_F(Posix, TheMountsOwnTree) {
  EXPECT_EQ(names_of(*host.list("")), (std::vector<std::string>{".", "..", "public", "volumes"}));
  EXPECT_EQ(names_of(*host.list("/volumes")), (std::vector<std::string>{".", "..", "v", "w"}));
  EXPECT_EQ(names_of(*host.list("/volumes", 8, true)),
            (std::vector<std::string>{".", "..", "v", "w"}));
  EXPECT_EQ(host.mkdir("/volumes/x").code(), Errc::not_permitted);
  EXPECT_EQ(host.mkdir("/x").code(), Errc::not_permitted);
  EXPECT_EQ(host.rmdir("/volumes/v").code(), Errc::not_permitted);
  EXPECT_EQ(host.create("/volumes/x").code(), Errc::not_permitted);
  EXPECT_EQ(host.rename("/volumes/v", "/volumes/x").code(), Errc::not_permitted);
  EXPECT_EQ(host.stat("/volumes/x").code(), Errc::not_found);
  EXPECT_TRUE(S_ISDIR(host.stat("/volumes")->mode));
}

TEST_F(Posix, RootsAreTheirVolumes) {
  const Node v = *host.walk("/volumes/v");
  const Node w = *host.walk("/volumes/w");
  EXPECT_EQ(v.inode, kRootInode);
  EXPECT_NE(v.slot, 0);
  EXPECT_NE(v.slot, w.slot);
  EXPECT_EQ(*host.walk("/volumes/v"), v);
  EXPECT_NE(host.stat("/volumes/v")->ino, host.stat("/volumes/w")->ino);
  EXPECT_EQ(host.stat("/volumes/v")->ino & (kInodeLimit - 1), 1u);
  // The entry of a list says the same as a lookup.
  const auto listed = host.list("/volumes").value();
  EXPECT_EQ(listed[2].name, "v");
  EXPECT_EQ(listed[2].ino, host.stat("/volumes/v")->ino);
}

TEST_F(Posix, NewVolumesAppearAndDeletedOnesGo) {
  ASSERT_EQ(host.stat("/volumes/new").code(), Errc::not_found);
  cluster.make_volume("new");
  cluster.clock.advance(std::chrono::seconds(1));
  ASSERT_TRUE(host.stat("/volumes/new").ok());
  ASSERT_TRUE(host.write_file("/volumes/new/f", "x").ok());
  const Node old = *host.walk("/volumes/new/f");
  cluster.delete_volume("new");
  cluster.make_volume("new");
  cluster.clock.advance(std::chrono::seconds(1));
  EXPECT_EQ(host.stat("/volumes/new/f").code(), Errc::not_found);
  EXPECT_EQ(host.vfs().get_attributes(host.caller(), old, std::nullopt).code(), Errc::stale_handle);
  EXPECT_NE(host.walk("/volumes/new")->slot, old.slot);
}

/// What the server says, past all caches.
pb::Attributes asked(Cluster& cluster, BranchId branch, InodeId inode) {
  pb::NodeRequest request;
  request.mutable_on()->set_branch(branch.value);
  request.set_inode(inode.value);
  pb::Attributes reply;
  EXPECT_TRUE(cluster.server.get_attributes({}, request, &reply).ok());
  return reply;
}

TEST_F(Posix, ADirectoryIsKnownAfterOnesOwnChanges) {
  ASSERT_TRUE(host.mkdir("/volumes/v/d").ok());
  const Node node = *host.walk("/volumes/v/d");
  const BranchId branch = (*host.sessions().attach(AttachTarget{"v", {}, {}, false}, 0))->branch;
  const auto step = [&](const Status& done, int calls) {
    ASSERT_TRUE(done.ok()) << done.to_string();
    host.meta.forget_calls();
    const Stat stat = host.vfs().get_attributes(host.caller(), node, std::nullopt)->stat;
    EXPECT_EQ(host.meta.calls("get_attributes"), calls);
    const pb::Attributes truth = asked(cluster, branch, node.inode);
    EXPECT_EQ(stat.nlink, truth.nlink());
    EXPECT_EQ(stat.mtime, (WallTime{truth.mtime().seconds(), truth.mtime().nanoseconds()}));
    EXPECT_EQ(stat.ctime, (WallTime{truth.ctime().seconds(), truth.ctime().nanoseconds()}));
    cluster.clock.advance(std::chrono::milliseconds(3));
  };
  cluster.clock.advance(std::chrono::milliseconds(3));
  step(host.write_file("/volumes/v/d/f", "x"), 0);
  step(host.mkdir("/volumes/v/d/e"), 0);
  step(host.unlink("/volumes/v/d/f"), 0);
  step(host.rmdir("/volumes/v/d/e"), 1);  // its answer does not tell when
  // Lost answers: the call is repeated, the change is one.
  host.meta.lose(7, 2);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(host.mkdir("/volumes/v/d/e" + std::to_string(i)).ok());
    cluster.clock.advance(std::chrono::milliseconds(3));
  }
  host.meta.lose(7, 0);
  (void)host.vfs().get_attributes(host.caller(), node, std::nullopt);
  step({}, 0);
  // A time that was set and lies ahead: what the next change makes of it is the server's to say.
  SetStat change;
  change.mtime = WallTime{4'000'000'000, 5};
  ASSERT_TRUE(host.vfs().set_attributes(host.caller(), node, change).ok());
  step(host.write_file("/volumes/v/d/g", "x"), 1);
}

TEST_F(Posix, WriteReadStat) {
  ASSERT_TRUE(host.write_file("/volumes/v/f", "hello").ok());
  EXPECT_EQ(*host.read_file("/volumes/v/f"), "hello");
  const Stat stat = *host.stat("/volumes/v/f");
  EXPECT_EQ(stat.length, 5u);
  EXPECT_EQ(stat.mode, S_IFREG | 0644u);
  EXPECT_EQ(stat.nlink, 1u);
  EXPECT_GT(stat.blocks, 0u);
}

TEST_F(Posix, WhatIsNotCommittedIsShown) {
  const std::uint64_t handle = *host.create("/volumes/v/f");
  ASSERT_TRUE(host.pwrite(handle, 10, "abc").ok());
  EXPECT_EQ(host.stat("/volumes/v/f")->length, 13u);
  EXPECT_EQ(*host.pread(handle, 0, 100), std::string(10, '\0') + "abc");
  EXPECT_EQ(*host.read_file("/volumes/v/f"), std::string(10, '\0') + "abc");
  ASSERT_TRUE(host.close(handle).ok());
  EXPECT_EQ(host.stat("/volumes/v/f")->length, 13u);
}

TEST_F(Posix, TruncateInOrderWithWrites) {
  const std::uint64_t handle = *host.create("/volumes/v/f");
  ASSERT_TRUE(host.pwrite(handle, 0, "0123456789").ok());
  ASSERT_TRUE(host.truncate("/volumes/v/f", 4).ok());
  EXPECT_EQ(host.stat("/volumes/v/f")->length, 4u);
  ASSERT_TRUE(host.truncate("/volumes/v/f", 8).ok());
  EXPECT_EQ(*host.pread(handle, 0, 100), std::string("0123") + std::string(4, '\0'));
  ASSERT_TRUE(host.pwrite(handle, 6, "x").ok());
  ASSERT_TRUE(host.truncate("/volumes/v/f", 0).ok());
  ASSERT_TRUE(host.pwrite(handle, 2, "z").ok());
  ASSERT_TRUE(host.close(handle).ok());
  EXPECT_EQ(*host.read_file("/volumes/v/f"), std::string(2, '\0') + "z");
}

TEST_F(Posix, OpenTruncates) {
  ASSERT_TRUE(host.write_file("/volumes/v/f", "long content").ok());
  const std::uint64_t old = *host.open("/volumes/v/f", O_RDONLY);
  ASSERT_TRUE(host.write_file("/volumes/v/f", "short").ok());
  EXPECT_EQ(*host.pread(old, 0, 100), "short");
  ASSERT_TRUE(host.close(old).ok());
  EXPECT_EQ(host.stat("/volumes/v/f")->length, 5u);
}

TEST_F(Posix, Append) {
  const std::uint64_t handle = *host.create("/volumes/v/f", O_WRONLY | O_APPEND);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(host.pwrite(handle, 0, "ab", {.append = true}).ok());
  ASSERT_TRUE(host.close(handle).ok());
  EXPECT_EQ(*host.read_file("/volumes/v/f"), "ababababab");
}

TEST_F(Posix, TimesSetAfterAWriteStay) {
  const std::uint64_t handle = *host.create("/volumes/v/f");
  ASSERT_TRUE(host.pwrite(handle, 0, "x").ok());
  SetStat change;
  change.mtime = WallTime{1000, 7};
  ASSERT_TRUE(host.vfs().set_attributes(host.caller(), *host.walk("/volumes/v/f"), change).ok());
  ASSERT_TRUE(host.close(handle).ok());
  EXPECT_EQ(host.stat("/volumes/v/f")->mtime, (WallTime{1000, 7}));
  EXPECT_EQ(*host.read_file("/volumes/v/f"), "x");
}

/// As tar sets them on a file that it has written.
struct Extracted {
  explicit Extracted(Host& host_in, const std::string& path) : host(host_in) {
    handle = *host.create(path, O_RDWR | O_CREAT, 0600);
    node = *host.walk(path);
    EXPECT_TRUE(host.pwrite(handle, 0, "content").ok());
    host.meta.forget_calls();
  }
  Status set(const SetStat& change) {
    return host.vfs().set_attributes(host.caller(), node, change).status();
  }
  Status chmod(std::uint32_t mode) {
    SetStat change;
    change.mode = mode;
    return set(change);
  }
  Status chown(std::uint32_t uid) {
    SetStat change;
    change.uid = uid;
    return set(change);
  }
  Host& host;
  std::uint64_t handle = 0;
  Node node;
};

TEST_F(Posix, AttributesOfADirtyFileGoWithItsCommit) {
  Extracted f(host, "/volumes/v/f");
  SetStat times;
  times.atime_now = true;
  times.mtime = WallTime{1000, 7};
  ASSERT_TRUE(f.set(times).ok());
  ASSERT_TRUE(f.chown(3'000'000'000).ok());
  ASSERT_TRUE(f.chmod(0640).ok());
  for (const bool closed : {false, true}) {
    const Stat stat = *host.stat("/volumes/v/f");
    EXPECT_EQ(stat.mode, S_IFREG | 0640u);
    EXPECT_EQ(stat.uid, 3'000'000'000u);
    EXPECT_EQ(stat.mtime, (WallTime{1000, 7}));
    EXPECT_EQ(stat.atime, cluster.clock.wall());
    EXPECT_EQ(stat.length, 7u);
    if (!closed) {
      ASSERT_TRUE(host.close(f.handle).ok());
    }
  }
  EXPECT_EQ(host.meta.calls("set_attributes"), 0);
  EXPECT_EQ(host.meta.calls("commit"), 1);
  EXPECT_EQ(host.meta.calls("get_attributes"), 0) << "what is committed is known";
  // Another host, past all that this one believes.
  Host other(cluster, "other");
  const Stat stat = *other.stat("/volumes/v/f");
  EXPECT_EQ(stat.mode, S_IFREG | 0640u);
  EXPECT_EQ(stat.uid, 3'000'000'000u);
  EXPECT_EQ(stat.mtime, (WallTime{1000, 7}));
}

TEST_F(Posix, ARecallCommitsWhatWasPutOff) {
  Extracted f(host, "/volumes/v/f");
  ASSERT_TRUE(f.chmod(0640).ok());
  Host other(cluster, "other");
  EXPECT_EQ(other.stat("/volumes/v/f")->mode, S_IFREG | 0640u);
  // Shared now: others look at any time.
  ASSERT_TRUE(host.pwrite(f.handle, 0, "again").ok());
  ASSERT_TRUE(f.chmod(0604).ok());
  EXPECT_EQ(host.meta.calls("set_attributes"), 1);
  cluster.clock.advance(std::chrono::seconds(2));
  EXPECT_EQ(other.stat("/volumes/v/f")->mode, S_IFREG | 0604u);
  ASSERT_TRUE(host.close(f.handle).ok());
}

TEST_F(Posix, AnOwnerTakesPrivilegesAway) {
  Extracted f(host, "/volumes/v/f");
  ASSERT_TRUE(f.chmod(04755).ok());
  ASSERT_TRUE(f.chown(5).ok());  // decided by the server, behind what was put off
  EXPECT_EQ(host.stat("/volumes/v/f")->mode, S_IFREG | 0755u);
  ASSERT_TRUE(host.pwrite(f.handle, 0, "more").ok());
  ASSERT_TRUE(f.chown(6).ok());
  ASSERT_TRUE(f.chmod(02755).ok());
  ASSERT_TRUE(host.pwrite(f.handle, 0, "most", {.kill_privileges = true}).ok());
  EXPECT_EQ(host.stat("/volumes/v/f")->mode, S_IFREG | 0755u);
  ASSERT_TRUE(host.close(f.handle).ok());
  EXPECT_EQ(host.stat("/volumes/v/f")->mode, S_IFREG | 0755u);
  EXPECT_EQ(host.stat("/volumes/v/f")->uid, 6u);
}

TEST_F(Posix, WhatTheServerMayRefuseIsAskedAtOnce) {
  Extracted f(host, "/volumes/v/f");
  ASSERT_TRUE(host.vfs().set_flags(host.caller(), f.node, kAppendOnly).ok());
  ASSERT_TRUE(host.pwrite(f.handle, 7, "+").ok());
  EXPECT_EQ(f.chmod(0640).code(), Errc::not_permitted);
  ASSERT_TRUE(host.vfs().set_flags(host.caller(), f.node, 0).ok());
  EXPECT_EQ(host.stat("/volumes/v/f")->mode, S_IFREG | 0600u);
  // An access list follows the mode, and the other way round.
  ASSERT_TRUE(host.pwrite(f.handle, 7, "+").ok());
  ASSERT_TRUE(f.chmod(0640).ok());
  host.meta.forget_calls();
  ASSERT_TRUE(host.vfs().set_xattr(host.caller(), f.node, "user.a", "b", {}).ok());
  EXPECT_EQ(host.meta.calls("commit"), 1) << "before it";
  ASSERT_TRUE(host.pwrite(f.handle, 7, "+").ok());
  ASSERT_TRUE(f.chmod(0604).ok());
  EXPECT_EQ(host.meta.calls("set_attributes"), 1);
  ASSERT_TRUE(host.close(f.handle).ok());
  EXPECT_EQ(host.stat("/volumes/v/f")->mode, S_IFREG | 0604u);
}

TEST_F(Posix, UnlinkedWhileOpen) {
  const std::uint64_t handle = *host.create("/volumes/v/f");
  ASSERT_TRUE(host.pwrite(handle, 0, "still here").ok());
  ASSERT_TRUE(host.vfs().fsync(host.caller(), handle, false).ok());
  const Node node = *host.walk("/volumes/v/f");
  ASSERT_TRUE(host.unlink("/volumes/v/f").ok());
  EXPECT_EQ(host.stat("/volumes/v/f").code(), Errc::not_found);
  EXPECT_EQ(*host.pread(handle, 0, 100), "still here");
  EXPECT_EQ(host.vfs().get_attributes(host.caller(), node, handle)->stat.nlink, 0u);
  ASSERT_TRUE(host.pwrite(handle, 6, "HERE").ok());
  EXPECT_EQ(*host.pread(handle, 0, 100), "still HERE");
  host.beat();
  EXPECT_TRUE(host.close(handle).ok());
}

TEST_F(Posix, RenameOverAnOpenFile) {
  ASSERT_TRUE(host.write_file("/volumes/v/old", "old").ok());
  ASSERT_TRUE(host.write_file("/volumes/v/new", "new").ok());
  const std::uint64_t handle = *host.open("/volumes/v/old", O_RDONLY);
  ASSERT_TRUE(host.rename("/volumes/v/new", "/volumes/v/old").ok());
  EXPECT_EQ(*host.pread(handle, 0, 100), "old");
  EXPECT_EQ(*host.read_file("/volumes/v/old"), "new");
  EXPECT_EQ(host.stat("/volumes/v/new").code(), Errc::not_found);
  ASSERT_TRUE(host.close(handle).ok());
}

TEST_F(Posix, RenameFlagsAndPlaces) {
  ASSERT_TRUE(host.mkdir("/volumes/v/d").ok());
  ASSERT_TRUE(host.write_file("/volumes/v/a", "a").ok());
  ASSERT_TRUE(host.write_file("/volumes/v/d/b", "b").ok());
  EXPECT_EQ(host.rename("/volumes/v/a", "/volumes/v/d/b", 1).code(), Errc::exists);
  EXPECT_EQ(host.rename("/volumes/v/a", "/volumes/v/d/b", 8).code(), Errc::invalid);
  ASSERT_TRUE(host.rename("/volumes/v/a", "/volumes/v/d/b", 2).ok());
  EXPECT_EQ(*host.read_file("/volumes/v/a"), "b");
  EXPECT_EQ(*host.read_file("/volumes/v/d/b"), "a");
  EXPECT_EQ(host.rename("/volumes/v/a", "/volumes/w/a").code(), Errc::cross_device);
  EXPECT_EQ(host.rename("/volumes/v/d", "/volumes/v/d/e").code(), Errc::invalid);
  ASSERT_TRUE(host.rename("/volumes/v/d", "/volumes/v/e").ok());
  EXPECT_EQ(*host.read_file("/volumes/v/e/b"), "a");
  EXPECT_EQ(host.rmdir("/volumes/v/e").code(), Errc::not_empty);
}

TEST_F(Posix, Links) {
  ASSERT_TRUE(host.write_file("/volumes/v/a", "a").ok());
  ASSERT_TRUE(host.link("/volumes/v/a", "/volumes/v/b").ok());
  EXPECT_EQ(host.stat("/volumes/v/a")->nlink, 2u);
  EXPECT_EQ(host.stat("/volumes/v/a")->ino, host.stat("/volumes/v/b")->ino);
  EXPECT_EQ(host.link("/volumes/v/a", "/volumes/v/b").code(), Errc::exists);
  EXPECT_EQ(host.link("/volumes/v/a", "/volumes/w/b").code(), Errc::cross_device);
  ASSERT_TRUE(host.rename("/volumes/v/a", "/volumes/v/b").ok());  // the same file: both stay
  EXPECT_TRUE(host.stat("/volumes/v/a").ok());
  ASSERT_TRUE(host.unlink("/volumes/v/a").ok());
  EXPECT_EQ(host.stat("/volumes/v/b")->nlink, 1u);
  EXPECT_EQ(*host.read_file("/volumes/v/b"), "a");
}

TEST_F(Posix, KindsOfFiles) {
  const Node root = *host.walk("/volumes/v");
  const EntryReply fifo = *host.vfs().make_node(host.caller(), root, "fifo", S_IFIFO | 0666, 0);
  EXPECT_EQ(fifo.attributes.stat.mode, S_IFIFO | 0644u);
  const std::string target(300, 't');
  const EntryReply link = *host.vfs().make_symlink(host.caller(), root, "link", target);
  EXPECT_EQ(*host.vfs().read_link(host.caller(), link.node), target);
  EXPECT_EQ(link.attributes.stat.length, 300u);
  EXPECT_EQ(host.vfs().lookup(host.caller(), root, std::string(256, 'n')).code(),
            Errc::name_too_long);
  EXPECT_EQ(host.open("/volumes/v", O_RDONLY).code(), Errc::is_directory);
}

TEST_F(Posix, AttributesChange) {
  ASSERT_TRUE(host.write_file("/volumes/v/f", "x").ok());
  const Node node = *host.walk("/volumes/v/f");
  SetStat change;
  change.mode = S_IFREG | 04755;
  change.uid = 7;
  const AttributesReply reply = *host.vfs().set_attributes(host.caller(), node, change);
  EXPECT_EQ(reply.stat.uid, 7u);
  EXPECT_EQ(host.stat("/volumes/v/f")->uid, 7u);
  SetStat set_id;
  set_id.mode = S_IFREG | 04755;
  ASSERT_TRUE(host.vfs().set_attributes(host.caller(), node, set_id).ok());
  EXPECT_EQ(host.stat("/volumes/v/f")->mode, S_IFREG | 04755u);
  const std::uint64_t handle = *host.open("/volumes/v/f", O_WRONLY);
  ASSERT_TRUE(host.pwrite(handle, 0, "y", {.kill_privileges = true}).ok());
  EXPECT_EQ(host.stat("/volumes/v/f")->mode, S_IFREG | 0755u);
  EXPECT_GT(host.notices.of(node), 0);
  ASSERT_TRUE(host.close(handle).ok());
}

TEST_F(Posix, HandlesKnowWhatTheyMay) {
  ASSERT_TRUE(host.write_file("/volumes/v/f", "x").ok());
  const std::uint64_t handle = *host.open("/volumes/v/f", O_RDONLY);
  EXPECT_EQ(host.pwrite(handle, 0, "y").code(), Errc::bad_handle);
  ASSERT_TRUE(host.close(handle).ok());
  EXPECT_EQ(host.pread(handle, 0, 1).code(), Errc::bad_handle);
  EXPECT_EQ(host.close(handle).code(), Errc::bad_handle);
  EXPECT_EQ(host.incarnations.opens, 0);
}

TEST_F(Posix, KeepsPagesOfUnchangedFiles) {
  ASSERT_TRUE(host.write_file("/volumes/v/f", "x").ok());
  ASSERT_TRUE(host.read_file("/volumes/v/f").ok());
  ASSERT_TRUE(host.read_file("/volumes/v/f").ok());
  EXPECT_TRUE(host.last_open.keep_cache);
  // This host's own writes are in its pages too.
  const std::uint64_t handle = *host.open("/volumes/v/f", O_RDWR);
  ASSERT_TRUE(host.pwrite(handle, 0, "y").ok());
  ASSERT_TRUE(host.close(handle).ok());
  ASSERT_TRUE(host.read_file("/volumes/v/f").ok());
  EXPECT_TRUE(host.last_open.keep_cache);
  EXPECT_EQ(host.open("/volumes/v/f", O_RDONLY | O_DIRECT).ok(), true);
  EXPECT_EQ(host.last_open.mode, OpenMode::direct);
}

TEST_F(Posix, AnOpenIsMovedOnce) {
  ASSERT_TRUE(host.write_file("/volumes/v/f", "x").ok());
  const Node node = *host.walk("/volumes/v/f");
  host.incarnations.move_next = true;
  const Caller caller = host.caller();
  EXPECT_EQ(host.vfs().open(caller, node, O_RDONLY).code(), Errc::stale_handle);
  host.incarnations.move_next = true;  // it asks again, and must not be sent away
  const auto reply = host.vfs().open(host.caller(), node, O_RDONLY);
  ASSERT_TRUE(reply.ok());
  ASSERT_TRUE(host.close(reply->handle).ok());
  EXPECT_EQ(host.incarnations.opens, 0);
}

TEST_F(Posix, LargeDirectoriesInPieces) {
  std::set<std::string> made;
  for (int i = 0; i < 300; ++i) {
    made.insert("f" + std::to_string(i));
    ASSERT_TRUE(host.close(*host.create("/volumes/v/f" + std::to_string(i))).ok());
  }
  for (const std::size_t room : {1u, 7u, 1000u}) {
    for (const bool plus : {false, true}) {
      const auto names = names_of(*host.list("/volumes/v", room, plus));
      ASSERT_EQ(names.size(), 302u);
      EXPECT_EQ(std::set<std::string>(names.begin() + 2, names.end()), made);
    }
  }
}

TEST_F(Posix, ADirectoryPassResumesAnywhere) {
  MountOptions options;
  options.directory_page = 5;
  Host small(cluster, "small", options);
  ASSERT_TRUE(small.mkdir("/volumes/v/d").ok());
  for (char c = 'a'; c <= 'z'; ++c) ASSERT_TRUE(small.mkdir(std::string("/volumes/v/d/") + c).ok());
  const Node node = *small.walk("/volumes/v/d");
  const std::uint64_t handle = *small.vfs().open_directory(small.caller(), node);
  const auto read = [&](std::uint64_t cookie, std::size_t room) {
    Filler filler(room);
    EXPECT_TRUE(small.vfs().read_directory(small.caller(), handle, cookie, false, filler).ok());
    return filler.entries;
  };
  std::map<std::uint64_t, std::string> after;  // cookie: the name that follows
  std::uint64_t cookie = 0;
  for (auto entries = read(0, 3); !entries.empty(); entries = read(cookie, 3)) {
    for (const ListedEntry& entry : entries) {
      after[cookie] = entry.name;
      cookie = entry.next;
    }
  }
  EXPECT_EQ(after.size(), 28u);
  for (const auto& [at, name] : after) {
    if (at == 0) continue;  // begins anew
    const auto entries = read(at, 1);
    ASSERT_EQ(entries.size(), 1u) << at;
    EXPECT_EQ(entries[0].name, name);
  }
  EXPECT_TRUE(read(cookie, 3).empty());
  // Unlinking what was read does not make the pass skip anything.
  std::size_t seen = 0;
  cookie = 0;
  for (auto entries = read(0, 4); !entries.empty(); entries = read(cookie, 4)) {
    for (const ListedEntry& entry : entries) {
      cookie = entry.next;
      if (entry.name[0] == '.') continue;
      ++seen;
      ASSERT_TRUE(small.rmdir("/volumes/v/d/" + entry.name).ok());
    }
  }
  EXPECT_EQ(seen, 26u);
  ASSERT_TRUE(small.mkdir("/volumes/v/d/late").ok());
  EXPECT_EQ(names_of(read(0, 10)), (std::vector<std::string>{".", "..", "late"}));
  small.vfs().release_directory(handle);
}

TEST_F(Posix, ListingCountsLookupsOfWhatWasTaken) {
  for (char c = 'a'; c <= 'e'; ++c)
    ASSERT_TRUE(host.close(*host.create(std::string("/volumes/v/") + c)).ok());
  int nodes = 0;
  const auto listed = host.list("/volumes/v", 2, true).value();
  for (const ListedEntry& entry : listed) {
    if (entry.node == 0) continue;
    ++nodes;
    host.vfs().forget(Node::unpack(entry.node), 1);
  }
  EXPECT_EQ(nodes, 5);
  EXPECT_EQ(host.incarnations.forgotten, 0);  // each was also found by its create
  for (char c = 'a'; c <= 'e'; ++c)
    host.vfs().forget(*host.walk(std::string("/volumes/v/") + c), 2);
  EXPECT_EQ(host.incarnations.forgotten, 5);
}

TEST_F(Posix, ExtendedAttributes) {
  ASSERT_TRUE(host.write_file("/volumes/v/f", "x").ok());
  const Node node = *host.walk("/volumes/v/f");
  EXPECT_EQ(host.vfs().get_xattr(host.caller(), node, "security.capability").code(),
            Errc::no_attribute);
  host.meta.forget_calls();
  EXPECT_EQ(host.vfs().get_xattr(host.caller(), node, "security.capability").code(),
            Errc::no_attribute);
  EXPECT_EQ(host.meta.calls(), 0);  // nothing is asked twice
  ASSERT_TRUE(host.vfs().set_xattr(host.caller(), node, "user.a", "1", {}).ok());
  EXPECT_EQ(
      host.vfs().set_xattr(host.caller(), node, "user.a", "2", {.flags = XATTR_CREATE}).code(),
      Errc::exists);
  EXPECT_EQ(*host.vfs().get_xattr(host.caller(), node, "user.a"), "1");
  EXPECT_EQ(*host.vfs().list_xattrs(host.caller(), node), std::vector<std::string>{"user.a"});
  ASSERT_TRUE(host.vfs().remove_xattr(host.caller(), node, "user.a").ok());
  EXPECT_EQ(host.vfs().get_xattr(host.caller(), node, "user.a").code(), Errc::no_attribute);
}

TEST_F(Posix, CopiesShareBlocks) {
  const std::string bytes(3 << 20, 'c');
  const std::uint64_t from = *host.create("/volumes/v/from");
  ASSERT_TRUE(host.pwrite(from, 0, bytes).ok());
  ASSERT_TRUE(host.pwrite(from, bytes.size(), "tail").ok());
  const std::uint64_t to = *host.create("/volumes/w/to");
  ASSERT_TRUE(host.pwrite(to, 0, "overwritten").ok());
  std::uint64_t at = 0;
  while (at < bytes.size() + 4) {
    const std::uint64_t copied = *host.vfs().copy_range(host.caller(), {.source_handle = from,
                                                                        .source_offset = at,
                                                                        .handle = to,
                                                                        .offset = at,
                                                                        .length = 1 << 30});
    ASSERT_GT(copied, 0u);
    at += copied;
  }
  EXPECT_EQ(*host.pread(to, 0, 100), bytes.substr(0, 100));
  EXPECT_EQ(*host.pread(to, static_cast<std::uint32_t>(bytes.size()), 100), "tail");
  ASSERT_TRUE(host.close(from).ok());
  const std::size_t stored = cluster.block_fake.blocks();
  ASSERT_TRUE(host.close(to).ok());
  EXPECT_EQ(cluster.block_fake.blocks(), stored);
  EXPECT_EQ(host.stat("/volumes/w/to")->length, bytes.size() + 4);
}

TEST_F(Posix, SpaceAndHoles) {
  const std::uint64_t handle = *host.create("/volumes/v/f");
  const std::uint64_t far = 3 * kChunkSize;
  ASSERT_TRUE(host.pwrite(handle, 0, std::string(8192, 'a')).ok());
  ASSERT_TRUE(host.pwrite(handle, far, std::string(8192, 'b')).ok());
  const auto seek = [&](std::uint64_t at, int whence) {
    return host.vfs().seek(host.caller(), handle, at, whence);
  };
  EXPECT_EQ(*seek(0, SEEK_DATA), 0u);
  EXPECT_EQ(*seek(0, SEEK_HOLE), 8192u);
  EXPECT_EQ(*seek(8192, SEEK_DATA), far);
  EXPECT_EQ(*seek(far, SEEK_HOLE), far + 8192);
  EXPECT_EQ(seek(far + 8192, SEEK_DATA).code(), Errc::no_device);
  ASSERT_TRUE(host.vfs().fallocate(host.caller(), handle, 0, far, 100'000).ok());
  EXPECT_EQ(host.stat("/volumes/v/f")->length, far + 100'000);
  EXPECT_EQ(*host.pread(handle, static_cast<std::uint32_t>(far + 8190), 4),
            std::string("bb\0\0", 4));
  constexpr std::uint32_t kPunch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  ASSERT_TRUE(host.pwrite(handle, 4090, "over").ok()) << "dirty where the hole begins";
  ASSERT_TRUE(host.vfs().fallocate(host.caller(), handle, kPunch, 0, 4092).ok());
  EXPECT_EQ(*seek(0, SEEK_DATA), 4092u);
  EXPECT_EQ(*host.pread(handle, 4091, 4), std::string("\0era", 4));
  ASSERT_TRUE(host.close(handle).ok());
}

TEST_F(Posix, DirtyBytesTakeBlocksWhereTheyAre) {
  const std::uint64_t handle = *host.create("/volumes/v/f");
  ASSERT_TRUE(host.truncate("/volumes/v/f", 1 << 30).ok());
  EXPECT_EQ(host.stat("/volumes/v/f")->blocks, 0u);
  ASSERT_TRUE(host.pwrite(handle, 1 << 20, std::string(51'200, 'a')).ok());
  EXPECT_EQ(host.stat("/volumes/v/f")->blocks, 100u);
  ASSERT_TRUE(host.pwrite(handle, (1 << 20) + 512, std::string(512, 'b')).ok());
  EXPECT_EQ(host.stat("/volumes/v/f")->blocks, 100u);
  ASSERT_TRUE(host.vfs().flush(host.caller(), handle, 0).ok());
  EXPECT_EQ(host.stat("/volumes/v/f")->blocks, 100u);
  ASSERT_TRUE(host.close(handle).ok());
}

TEST_F(Posix, AFileWithoutANameKeepsItsBytesWhenItGetsOne) {
  const Node root = *host.walk("/volumes/v");
  const auto made = host.vfs().create_unnamed(host.caller(), root, 0600, O_RDWR);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const std::uint64_t handle = made->open.handle;
  EXPECT_EQ(made->entry.attributes.stat.nlink, 0u);
  ASSERT_TRUE(host.pwrite(handle, 0, "unflushed").ok());
  host.beat();
  EXPECT_EQ(names_of(*host.list("/volumes/v")), (std::vector<std::string>{".", ".."}));
  const auto linked = host.vfs().link(host.caller(), made->entry.node, root, "f");
  ASSERT_TRUE(linked.ok()) << linked.status().to_string();
  host.vfs().forget(linked->node, 2);
  ASSERT_TRUE(host.close(handle).ok());
  EXPECT_EQ(*host.read_file("/volumes/v/f"), "unflushed");
  EXPECT_EQ(host.stat("/volumes/v/f")->nlink, 1u);
}

TEST_F(Posix, AWhiteoutIsSeenAtOnce) {
  ASSERT_TRUE(host.write_file("/volumes/v/a", "a").ok());
  ASSERT_TRUE(host.rename("/volumes/v/a", "/volumes/v/b", 4).ok());
  EXPECT_TRUE(S_ISCHR(host.stat("/volumes/v/a")->mode));
  EXPECT_EQ(host.stat("/volumes/v/a")->rdev, 0u);
  EXPECT_EQ(*host.read_file("/volumes/v/b"), "a");
}

TEST_F(Posix, FlagsForbidWithTheLeaseToo) {
  ASSERT_TRUE(host.write_file("/volumes/v/f", "old").ok());
  const Node node = *host.walk("/volumes/v/f");
  const std::uint64_t handle = *host.open("/volumes/v/f", O_RDWR);
  ASSERT_TRUE(host.pwrite(handle, 0, "new").ok());
  ASSERT_TRUE(host.vfs().set_flags(host.caller(), node, kImmutable).ok()) << "written before";
  EXPECT_EQ(*host.vfs().get_flags(host.caller(), node), kImmutable);
  EXPECT_EQ(host.open("/volumes/v/f", O_RDWR).code(), Errc::not_permitted);
  EXPECT_TRUE(host.open("/volumes/v/f", O_RDONLY).ok());
  ASSERT_TRUE(host.pwrite(handle, 0, "bad").ok());
  EXPECT_EQ(host.vfs().flush(host.caller(), handle, 0).code(), Errc::not_permitted);
  EXPECT_EQ(*host.read_file("/volumes/v/f"), "new");
  ASSERT_TRUE(host.vfs().set_flags(host.caller(), node, kAppendOnly).ok());
  EXPECT_EQ(host.open("/volumes/v/f", O_WRONLY).code(), Errc::not_permitted);
  const std::uint64_t appending = *host.open("/volumes/v/f", O_WRONLY | O_APPEND);
  ASSERT_TRUE(host.pwrite(appending, 0, "er", {.append = true}).ok());
  EXPECT_TRUE(host.close(appending).ok());
  EXPECT_EQ(*host.read_file("/volumes/v/f"), "newer");
}

TEST_F(Posix, StatFs) {
  Host quota(cluster, "quota");
  cluster.make_volume("q", 100 << 20);
  const StatFs before = *quota.vfs().stat_fs(quota.caller(), *quota.walk("/volumes/q"));
  EXPECT_EQ(before.blocks, (100u << 20) / 4096);
  ASSERT_TRUE(quota.write_file("/volumes/q/f", std::string(1 << 20, 'x')).ok());
  const StatFs after = *quota.vfs().stat_fs(quota.caller(), *quota.walk("/volumes/q"));
  EXPECT_EQ(before.blocks_free - after.blocks_free, 256u);
}

TEST_F(Posix, WithTheLeaseNothingIsAskedTwice) {
  ASSERT_TRUE(host.mkdir("/volumes/v/d").ok());
  ASSERT_TRUE(host.write_file("/volumes/v/d/f", "x").ok());
  ASSERT_TRUE(host.read_file("/volumes/v/d/f").ok());
  ASSERT_EQ(host.stat("/volumes/v/d/none").code(), Errc::not_found);
  ASSERT_TRUE(host.stat("/volumes/v/d").ok());
  host.meta.forget_calls();
  for (int i = 0; i < 3; ++i) {
    cluster.clock.advance(std::chrono::milliseconds(100));
    EXPECT_TRUE(host.read_file("/volumes/v/d/f").ok());
    EXPECT_EQ(host.stat("/volumes/v/d/none").code(), Errc::not_found);
    EXPECT_TRUE(host.stat("/volumes/v/d/f").ok());
  }
  EXPECT_EQ(host.meta.calls(), 0);
}

}  // namespace
}  // namespace starlane::client::testing
