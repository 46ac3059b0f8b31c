#include <algorithm>
#include <map>

#include "common/rng.h"
#include "meta/members/fixture.h"
#include "meta/rows.h"

namespace starlane::meta {
namespace {

class Upkeep : public ::testing::Test {
 protected:
  explicit Upkeep(const Options& options = {}) : site(options) {}
  void SetUp() override {
    ASSERT_TRUE(site.create_volume("v").ok());
    ASSERT_TRUE(user.attach("v").ok());
  }
  void let_pass(int heartbeats) {
    for (int i = 0; i < heartbeats; ++i) {
      site.clock.advance(site.heartbeat);
      ASSERT_TRUE(user.beat().ok());
    }
  }
  std::int64_t held() { return site.total(accumulator_key(user.branch, InodeId{}, What::held)); }
  std::int64_t count_of(std::uint64_t slice) { return site.total(count_key(SliceId{slice})); }

  Site site;
  Client user{site};
};

TEST_F(Upkeep, WhatADeadSessionReservedIsRemoved) {
  const std::uint64_t inode = user.create(1, "f", 1).value();
  const auto reserved = user.reserve(3);
  ASSERT_TRUE(user.commit(inode, 0, 100, reserved->first() + 1, reserved->batch()).ok());
  ASSERT_TRUE(site.close_session(user.session).ok());
  const auto done = site.keep_all_house();
  EXPECT_EQ(done.orphan_slices(), 2u);
  EXPECT_EQ(done.forgotten_outcomes(), 1u);
  EXPECT_TRUE(site.rows(user.branch, Table::reserved).empty());
  EXPECT_TRUE(site.system_rows(Table::dead_session).empty());
  const std::vector<std::uint64_t> expected{reserved->first(), reserved->first() + 2};
  EXPECT_EQ(site.remove_dead(), expected);
  EXPECT_EQ(held(), 0);
  EXPECT_TRUE(site.check().empty());
  EXPECT_TRUE(site.remove_dead().empty());
}

TEST_F(Upkeep, WhatAProcessReservedIsRemovedWhenAnotherTakesOver) {
  const std::uint64_t inode = user.create(1, "f", 1).value();
  const auto reserved = user.reserve(3);
  ASSERT_TRUE(user.commit(inode, 0, 100, reserved->first() + 1, reserved->batch()).ok());
  for (int i = 0; i < 70; ++i) ASSERT_TRUE(user.reserve(1).ok());
  const auto late = user.reserve(1);
  pb::AttachRequest request;
  request.set_session(user.session.value);
  request.set_volume("v");
  request.set_take_over(true);
  ASSERT_TRUE(user.attach(request).ok());
  EXPECT_TRUE(site.rows(user.branch, Table::reserved).empty());
  EXPECT_NE(user.commit(inode, 200, 100, late->first(), late->batch()).code(), Errc::ok);
  EXPECT_EQ(site.remove_dead().size(), 2U + 70 + 1);
  EXPECT_TRUE(user.write(inode, 100, 100).ok());
  EXPECT_TRUE(site.check().empty());
}

TEST_F(Upkeep, AFileThatIsOpenOutlivesItsNameUntilItIsLetGo) {
  const std::uint64_t inode = user.create(1, "f").value();
  ASSERT_TRUE(user.write(inode, 0, 100).ok());
  ASSERT_TRUE(user.unlink(1, "f", true).ok());
  for (int i = 0; i < 30; ++i) {
    site.clock.advance(site.heartbeat);
    ASSERT_TRUE(user.beat({inode}).ok());
    ASSERT_EQ(site.keep_all_house().freed_inodes(), 0u);
  }
  EXPECT_TRUE(user.write(inode, 100, 50).ok()) << "it can still be written";
  ASSERT_TRUE(user.beat().ok());
  EXPECT_EQ(site.keep_all_house().freed_inodes(), 1u);
  EXPECT_EQ(held(), 150);
  EXPECT_EQ(site.remove_dead().size(), 2u);
  EXPECT_EQ(held(), 0);
  EXPECT_TRUE(site.check().empty());
}

TEST_F(Upkeep, PinsOfADeadSessionHoldNothing) {
  const std::uint64_t inode = user.create(1, "f").value();
  ASSERT_TRUE(user.unlink(1, "f", true).ok());
  EXPECT_EQ(site.rows(user.branch, Table::pin).size(), 1u);
  ASSERT_TRUE(site.close_session(user.session).ok());
  site.keep_all_house();
  EXPECT_TRUE(site.rows(user.branch, Table::pin).empty());
  EXPECT_EQ(site.keep_all_house().freed_inodes() + site.rows(user.branch, Table::unlinked).size(),
            0u);
  EXPECT_FALSE(site.engine.begin()->get(inode_key(user.branch, InodeId{inode}))->has_value());
}

TEST_F(Upkeep, ALongFileThatOnlyOneUsesIsFreedSoonAfterItsUnlink) {
  const std::uint64_t inode = user.create(1, "f").value();
  ASSERT_TRUE(user.write(inode, kChunkSize, 100).ok());
  ASSERT_TRUE(user.unlink(1, "f").ok());
  EXPECT_EQ(site.keep_all_house().freed_inodes(), 0u) << "an open may have raced with the unlink";
  let_pass(2);
  EXPECT_EQ(site.keep_all_house().freed_inodes(), 1u);
}

TEST_F(Upkeep, ASliceGoesWithItsLastReference) {
  const std::uint64_t a = user.create(1, "a").value();
  const std::uint64_t b = user.create(1, "b").value();
  const std::uint64_t c = user.create(1, "c").value();
  const std::uint64_t slice = user.write(a, 0, 1000).value();
  ASSERT_TRUE(user.copy(user.branch, a, b, 1000).ok());
  ASSERT_TRUE(user.copy(user.branch, b, c, 500).ok());
  EXPECT_EQ(count_of(slice), 2);
  ASSERT_TRUE(user.unlink(1, "a").ok());
  let_pass(2);
  site.keep_all_house();
  EXPECT_TRUE(site.remove_dead().empty());
  EXPECT_EQ(count_of(slice), 1);
  // The other two die together: of two rows of one page only the last may decide.
  ASSERT_TRUE(user.unlink(1, "b").ok());
  ASSERT_TRUE(user.unlink(1, "c").ok());
  let_pass(2);
  site.keep_all_house();
  EXPECT_EQ(site.rows(user.branch, Table::dead).size(), 2u);
  EXPECT_EQ(site.remove_dead(), std::vector<std::uint64_t>{slice});
  EXPECT_EQ(count_of(slice), 0);
  EXPECT_EQ(held(), 0);
  EXPECT_TRUE(site.check().empty());
}

TEST_F(Upkeep, NothingIsRemovedBeforeItsDeathIsDurable) {
  const std::uint64_t inode = user.create(1, "f").value();
  ASSERT_TRUE(user.write(inode, 0, 1000).ok());
  ASSERT_TRUE(user.write(inode, 0, 1000).ok());
  ASSERT_EQ(site.rows(user.branch, Table::dead).size(), 1u);
  site.engine.disk().fail_syncs(1, Status(Errc::io, "no"));
  EXPECT_FALSE(site.ask(&MetaService::dead_slices, pb::KeeperRequest()).ok());
}

TEST_F(Upkeep, AfterACrashADeadReferenceIsToldOrNeverDied) {
  const std::uint64_t inode = user.create(1, "f").value();
  const std::uint64_t old = user.write(inode, 0, 1000).value();
  ASSERT_TRUE(user.write(inode, 0, 1000).ok());
  const auto dead = site.ask(&MetaService::dead_slices, pb::KeeperRequest());
  ASSERT_EQ(dead->slices_size(), 1);
  EXPECT_EQ(dead->slices(0).slice(), old);
  site.engine.crash(true);
  // Its blocks may be gone now: it must not be in the file.
  site.references.clear();
  EXPECT_TRUE(site.check().empty());
  for (const auto& reference : site.references) {
    EXPECT_FALSE(reference.kind() == "live" && reference.slice() == old);
  }
  EXPECT_EQ(site.remove_dead(), std::vector<std::uint64_t>{old});
}

TEST_F(Upkeep, SettlingTwiceIsSettlingOnce) {
  const std::uint64_t inode = user.create(1, "f").value();
  ASSERT_TRUE(user.write(inode, 0, 1000).ok());
  ASSERT_TRUE(user.write(inode, 0, 1000).ok());
  const auto dead = site.ask(&MetaService::dead_slices, pb::KeeperRequest());
  pb::SettleRequest settle;
  settle.add_rows(dead->slices(0).row());
  settle.add_rows(dead->slices(0).row());
  EXPECT_TRUE(site.ask(&MetaService::settle_dead, settle).ok());
  EXPECT_TRUE(site.ask(&MetaService::settle_dead, settle).ok());
  EXPECT_EQ(held(), 0);
  settle.add_rows("nonsense");
  EXPECT_FALSE(site.ask(&MetaService::settle_dead, settle).ok());
}

TEST_F(Upkeep, ASliceThatOthersReferToIsNotSettledAway) {
  const std::uint64_t a = user.create(1, "a").value();
  const std::uint64_t b = user.create(1, "b").value();
  ASSERT_TRUE(user.write(a, 0, 1000).ok());
  ASSERT_TRUE(user.copy(user.branch, a, b, 1000).ok());
  ASSERT_TRUE(user.write(a, 0, 1000).ok());
  pb::SettleRequest settle;
  settle.add_rows(site.rows(user.branch, Table::dead).at(0).key);
  EXPECT_EQ(site.ask(&MetaService::settle_dead, settle).code(), Errc::invalid);
}

TEST_F(Upkeep, CursorsThatWereNotGivenOutAreRefused) {
  pb::KeeperRequest request;
  request.set_cursor("what");
  EXPECT_EQ(site.ask(&MetaService::dead_slices, request).code(), Errc::invalid);
  EXPECT_EQ(site.ask(&MetaService::long_chunks, request).code(), Errc::invalid);
  pb::FsckRequest check;
  check.set_cursor("what");
  EXPECT_EQ(site.ask(&MetaService::fsck_references, check).code(), Errc::invalid);
}

Options short_lists() {
  Options options;
  options.long_list = 4;
  return options;
}

class LongLists : public Upkeep {
 protected:
  LongLists() : Upkeep(short_lists()) {}
  void SetUp() override {
    Upkeep::SetUp();
    inode = user.create(1, "f").value();
    for (std::uint64_t i = 0; i < 6; ++i) ASSERT_TRUE(user.write(inode, i * 100, 100).ok());
  }
  pb::LongChunksReply chunks() {
    return site.ask(&MetaService::long_chunks, pb::KeeperRequest()).value();
  }
  pb::FileMapReply map() {
    pb::FileMapRequest request;
    user.fill(request.mutable_on());
    request.set_inode(inode);
    request.set_chunks(1);
    return site.ask(&MetaService::file_map, request).value();
  }
  pb::ReplaceChunkRequest merged(const pb::FileMapReply& as_read, std::uint32_t length) {
    pb::ReplaceChunkRequest request;
    request.mutable_on()->set_session(user.session.value);
    request.mutable_on()->set_branch(user.branch.value);
    request.set_inode(inode);
    for (const auto& entry : as_read.chunks(0).entries()) *request.add_replaced() = entry;
    const auto reserved = user.reserve(1);
    pb::NewSlice* slice = request.add_slices();
    slice->set_batch(reserved->batch());
    slice->mutable_entry()->set_slice(reserved->first());
    slice->mutable_entry()->set_length(length);
    slice->mutable_entry()->set_slice_length(length);
    return request;
  }

  std::uint64_t inode = 0;
};

TEST_F(LongLists, AreToldAndExchanged) {
  ASSERT_EQ(chunks().chunks_size(), 1);
  EXPECT_EQ(chunks().chunks(0).inode(), inode);
  EXPECT_EQ(chunks().chunks(0).entries(), 6u);
  const pb::FileMapReply before = map();
  const pb::ReplaceChunkRequest request = merged(before, 600);
  ASSERT_TRUE(user.write(inode, 600, 50).ok()) << "a newer entry stays";
  const auto version = user.attributes(inode)->version();
  ASSERT_TRUE(site.ask(&MetaService::replace_chunk, request).ok());
  EXPECT_EQ(user.attributes(inode)->version(), version) << "the bytes are the same";
  EXPECT_EQ(map().chunks(0).entries_size(), 2);
  EXPECT_TRUE(site.ask(&MetaService::replace_chunk, request).ok()) << "sent again: it happened";
  EXPECT_EQ(map().chunks(0).entries_size(), 2);
  EXPECT_EQ(chunks().chunks_size(), 0);
  EXPECT_TRUE(site.rows(user.branch, Table::long_chunk).empty());
  EXPECT_EQ(site.remove_dead().size(), 6u);
  EXPECT_TRUE(site.check().empty());
}

TEST_F(LongLists, AreLeftAloneWhenTheyChangedMeanwhile) {
  const pb::ReplaceChunkRequest request = merged(map(), 600);
  ASSERT_TRUE(user.write(inode, 0, 100).ok());  // The first entry is gone.
  EXPECT_EQ(site.ask(&MetaService::replace_chunk, request).code(), Errc::stale);
  EXPECT_TRUE(site.check().empty());
}

TEST_F(LongLists, AreNotExchangedForWhatWasNotReserved) {
  pb::ReplaceChunkRequest request = merged(map(), 600);
  request.mutable_slices(0)->set_batch(1'000'000);
  request.mutable_slices(0)->mutable_entry()->set_slice(1'000'000);
  EXPECT_EQ(site.ask(&MetaService::replace_chunk, request).code(), Errc::invalid);
  request.mutable_slices(0)->set_batch(0);
  EXPECT_EQ(site.ask(&MetaService::replace_chunk, request).code(), Errc::invalid);
}

TEST_F(LongLists, BridgedHolesCountAsBytes) {
  ASSERT_TRUE(user.write(inode, 1000, 100).ok());
  ASSERT_TRUE(site.ask(&MetaService::replace_chunk, merged(map(), 1100)).ok());
  EXPECT_EQ(user.attributes(inode)->bytes(), 1100u);
  EXPECT_TRUE(site.check().empty());
}

// All that is left in the spaces of branches and of what they share, accumulators too.
std::vector<kv::Row> everything_of_branches(Site& site) {
  return site.rows({std::string("\x02"), std::string("\x04")});
}

TEST_F(Upkeep, ADeletedVolumeLeavesNothing) {
  ASSERT_TRUE(site.create_volume("other").ok());
  Client other(site);
  ASSERT_TRUE(other.attach("other").ok());
  const std::uint64_t directory = user.mkdir(1, "d").value();
  for (int i = 0; i < 30; ++i) {
    const std::uint64_t inode = user.create(directory, "f" + std::to_string(i), i + 1).value();
    for (int k = 0; k < 3; ++k) ASSERT_TRUE(user.write(inode, k * kChunkSize, 100).ok());
    if (i % 3 == 0) {
      ASSERT_TRUE(user.link(inode, 1, "l" + std::to_string(i)).ok());
    }
    if (i % 5 == 0) {
      ASSERT_TRUE(user.unlink(directory, "f" + std::to_string(i), true).ok());
    }
  }
  pb::XattrRequest xattr;
  user.fill(xattr.mutable_on());
  xattr.set_inode(directory);
  xattr.set_name("user.a");
  xattr.set_value("b");
  ASSERT_TRUE(site.ask(&MetaService::set_xattr, xattr).ok());
  ASSERT_TRUE(user.reserve(5).ok());
  // One of its slices lives on elsewhere.
  const std::uint64_t source = user.create(1, "shared").value();
  const std::uint64_t shared = user.write(source, 0, 777).value();
  const std::uint64_t copy = other.create(1, "copy").value();
  pb::AttachRequest both;
  both.set_session(other.session.value);
  both.set_volume("v");
  ASSERT_EQ(site.ask(&MetaService::attach, both).code(), Errc::busy);
  ASSERT_TRUE(user.release_lease().ok());
  ASSERT_TRUE(site.ask(&MetaService::attach, both).ok());
  ASSERT_TRUE(other.copy(user.branch, source, copy, 777).ok());
  EXPECT_TRUE(site.check().empty());

  ASSERT_TRUE(site.delete_volume("v", true).ok());
  EXPECT_NE(user.write(source, 0, 10).code(), Errc::ok);
  std::vector<std::uint64_t> removed;
  for (int i = 0; i < 10; ++i) {
    site.keep_all_house();
    for (const std::uint64_t slice : site.remove_dead()) removed.push_back(slice);
  }
  EXPECT_EQ(std::count(removed.begin(), removed.end(), shared), 0) << "another volume refers to it";
  EXPECT_EQ(removed.size(), 30u * 3 + 5 + 0u);
  EXPECT_FALSE(site.engine.begin()->get(head_key(user.branch))->has_value());
  const std::string prefix =
      table_range(Space::branch, user.branch, Table::inode).first.substr(0, 9);
  for (const kv::Row& row : everything_of_branches(site))
    EXPECT_NE(row.key.substr(0, 9), prefix) << row.key;
  EXPECT_TRUE(site.check().empty());

  ASSERT_TRUE(other.detach().ok());
  ASSERT_TRUE(site.delete_volume("other", true).ok());
  removed.clear();
  for (int i = 0; i < 10; ++i) {
    site.keep_all_house();
    for (const std::uint64_t slice : site.remove_dead()) removed.push_back(slice);
  }
  EXPECT_EQ(removed, std::vector<std::uint64_t>{shared});
  EXPECT_TRUE(everything_of_branches(site).empty());
  EXPECT_TRUE(site.system_rows(Table::view).empty());
  EXPECT_TRUE(site.system_rows(Table::volume).empty());
}

// Random use with conflicts and lost answers; afterwards rows agree, and when all is deleted
// nothing is left, and every slice that was committed was removed exactly once.
class RandomUse {
 public:
  explicit RandomUse(std::uint64_t seed) : rng_(seed) {
    for (const char* name : {"a", "b"}) EXPECT_TRUE(site_.create_volume(name).ok());
    for (const char* name : {"a", "b"}) {
      clients_.push_back(std::make_unique<Client>(site_));
      EXPECT_TRUE(clients_.back()->attach(name).ok());
    }
    site_.engine.set_faults({.seed = seed, .conflict_one_in = 20, .lost_answer_one_in = 30});
  }
  void step() {
    Client& client = *clients_[rng_.below(2)];
    const std::string name = "f" + std::to_string(rng_.below(8));
    switch (rng_.below(8)) {
      case 0:
        ignore(client.create(1, name));
        break;
      case 1:
        ignore(client.unlink(1, name, rng_.one_in(3)));
        break;
      case 2:
      case 3:
        ignore(client.write(inode_of(client), rng_.below(4) * 100,
                            100 + static_cast<std::uint32_t>(rng_.below(100))));
        break;
      case 4:
        ignore(client.copy(client.branch, inode_of(client), inode_of(client), 150));
        break;
      case 5:
        ignore(client.link(inode_of(client), 1, name));
        break;
      case 6:
        pass();
        break;
      case 7:
        remove();
        break;
    }
  }
  void finish() {
    site_.engine.set_faults({});
    EXPECT_EQ(site_.check(), std::vector<std::string>());
    for (auto& client : clients_) EXPECT_TRUE(site_.close_session(client->session).ok());
    for (const char* name : {"a", "b"}) EXPECT_TRUE(site_.delete_volume(name).ok());
    for (int i = 0; i < 8; ++i) {
      site_.keep_all_house();
      remove();
    }
    EXPECT_TRUE(everything_of_branches(site_).empty());
    for (const auto& [slice, times] : removed_) EXPECT_EQ(times, 1) << "slice " << slice;
  }

 private:
  template <typename T>
  static void ignore(const T&) {}
  std::uint64_t inode_of(Client& client) {
    const auto rows = site_.rows(client.branch, Table::inode);
    KeyReader key(rows[rng_.below(rows.size())].key);
    return key.u64();
  }
  void pass() {
    site_.clock.advance(site_.heartbeat);
    for (auto& client : clients_) ignore(client->beat());
    ignore(site_.keep_house());
  }
  void remove() {
    const auto dead = site_.ask(&MetaService::dead_slices, pb::KeeperRequest());
    if (!dead.ok()) return;
    for (const pb::DeadSlice& slice : dead->slices()) {
      pb::SettleRequest settle;
      settle.add_rows(slice.row());
      const auto settled = site_.ask(&MetaService::settle_dead, settle);
      if (settled.ok() || settled.code() == Errc::unavailable) ++removed_[slice.slice()];
    }
  }

  Site site_;
  Rng rng_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::map<std::uint64_t, int> removed_;
};

TEST(UpkeepAtRandom, LeavesNothingAndLosesNothing) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (std::uint64_t i = 0; i < 12; ++i) {
    RandomUse use(seed + i);
    for (int step = 0; step < 300; ++step) use.step();
    use.finish();
  }
}

}  // namespace
}  // namespace starlane::meta
