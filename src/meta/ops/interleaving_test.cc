// What two operations may do to each other, each pair in the one order that hurts: the second
// happens between the reads and the commit of the first.
#include <gtest/gtest.h>

#include "common/bytes.h"
#include "kv/mem/mem_engine.h"
#include "meta/nodes.h"
#include "meta/ops/interleaved_engine.h"
#include "meta/ops/test_volume.h"
#include "meta/truncate.h"

namespace starlane::meta {
namespace {

class Interleaving : public testing::Test {
 protected:
  Interleaving() : slow(real), v(slow), w(real) {
    make_branch(real, BranchId{7});
    let_in(real, BranchId{7}, SessionId{5}, 1);
    v.on.set_session(5);
    v.on.set_attachment_epoch(1);
    EXPECT_TRUE(v.create(1, "warm").ok());  // so that no commit of the tests is one for ids
    EXPECT_TRUE(v.write(v.lookup(1, "warm")->inode(), 0, 1).ok());
    EXPECT_TRUE(w.create(1, "warm2").ok());
  }
  /// `what` happens between the reads and the commit of the next operation of v.
  void then(std::function<void()> what) { slow.before_next_commit(std::move(what)); }
  void TearDown() override { EXPECT_TRUE(slow.happened()); }

  kv::mem::MemEngine real;
  InterleavedEngine slow;
  TestVolume v;  // the first
  TestVolume w;  // the second
};

TEST_F(Interleaving, CreateInARemovedDirectory) {
  const std::uint64_t d = w.mkdir(1, "d").value().inode();
  then([&] { EXPECT_TRUE(w.rmdir(1, "d").ok()); });
  EXPECT_EQ(v.create(d, "f").code(), Errc::not_found);
  EXPECT_TRUE(w.rows(Table::entry).size() == 2u);
}

TEST_F(Interleaving, RemoveOfADirectoryThatIsNoLongerEmpty) {
  const std::uint64_t d = w.mkdir(1, "d").value().inode();
  then([&] { EXPECT_TRUE(w.create(d, "f").ok()); });
  EXPECT_EQ(v.rmdir(1, "d").code(), Errc::not_empty);
  EXPECT_TRUE(w.lookup(d, "f").ok());
}

TEST_F(Interleaving, RenameOverADirectoryThatIsNoLongerEmpty) {
  const std::uint64_t d = w.mkdir(1, "d").value().inode();
  ASSERT_TRUE(w.mkdir(1, "e").ok());
  then([&] { EXPECT_TRUE(w.mkdir(d, "sub").ok()); });
  EXPECT_EQ(v.rename(1, "e", 1, "d").code(), Errc::not_empty);
}

TEST_F(Interleaving, LinkAndRenameIntoARemovedDirectory) {
  const std::uint64_t d = w.mkdir(1, "d").value().inode();
  const std::uint64_t f = w.create(1, "f").value().inode();
  then([&] { EXPECT_TRUE(w.rmdir(1, "d").ok()); });
  EXPECT_EQ(v.link(f, d, "g").code(), Errc::not_found);
  const std::uint64_t e = w.mkdir(1, "e").value().inode();
  then([&] { EXPECT_TRUE(w.rmdir(1, "e").ok()); });
  EXPECT_EQ(v.rename(1, "f", e, "g").code(), Errc::not_found);
  EXPECT_EQ(w.attributes(f)->nlink(), 1u);
}

TEST_F(Interleaving, TwoRenamesNeverTieACycle) {
  const std::uint64_t a = w.mkdir(1, "a").value().inode();
  const std::uint64_t b = w.mkdir(1, "b").value().inode();
  const std::uint64_t below_b = w.mkdir(b, "c").value().inode();
  then([&] { EXPECT_TRUE(w.rename(1, "b", a, "x").ok()); });
  EXPECT_EQ(v.rename(1, "a", below_b, "y").code(), Errc::invalid);
  EXPECT_EQ(w.lookup(1, "a")->inode(), a);
}

TEST_F(Interleaving, ExchangesNeverTieACycle) {
  const std::uint64_t a = w.mkdir(1, "a").value().inode();
  const std::uint64_t b = w.mkdir(1, "b").value().inode();
  const std::uint64_t c = w.mkdir(b, "c").value().inode();
  ASSERT_TRUE(w.create(c, "f").ok());
  then([&] { EXPECT_TRUE(w.rename(1, "b", a, "x").ok()); });
  EXPECT_EQ(v.rename(1, "a", c, "f", 2).code(), Errc::invalid);
}

TEST_F(Interleaving, TwoCreatesOfOneName) {
  then([&] { EXPECT_TRUE(w.create(1, "f").ok()); });
  EXPECT_EQ(v.create(1, "f").code(), Errc::exists);
  EXPECT_EQ(w.attributes(1)->entries(), 3u);
}

TEST_F(Interleaving, LinkOfAFileWhoseLastNameGoes) {
  const std::uint64_t f = w.create(1, "f").value().inode();
  then([&] { EXPECT_TRUE(w.unlink(1, "f").ok()); });
  EXPECT_EQ(v.link(f, 1, "g").code(), Errc::not_found);
}

TEST_F(Interleaving, UnlinkOfANameThatWasReplaced) {
  const std::uint64_t f = w.create(1, "f").value().inode();
  const std::uint64_t g = w.create(1, "g").value().inode();
  then([&] { EXPECT_TRUE(w.rename(1, "g", 1, "f").ok()); });
  EXPECT_EQ(v.unlink(1, "f")->inode(), g);
  EXPECT_EQ(w.attributes(f)->nlink(), 0u);
}

TEST_F(Interleaving, TimesOfADirectorySetBesideACreate) {
  const std::uint64_t d = w.mkdir(1, "d").value().inode();
  pb::SetAttributesRequest request;
  request.set_inode(d);
  request.mutable_mtime()->set_seconds(5);
  then([&] { EXPECT_EQ(w.set(request)->mtime().seconds(), 5); });
  ASSERT_TRUE(v.create(d, "f").ok());
  EXPECT_EQ(w.attributes(d)->mtime().seconds(), v.clock().wall().seconds)
      << "the create came after";
}

TEST_F(Interleaving, ACutOfTheBranchEpoch) {
  then([&] { edit_head(real, BranchId{7}, [](HeadRow& head) { head.epoch += 1; }); });
  const std::uint64_t f = v.create(1, "f").value().inode();
  const auto row = real.begin()->get(inode_key(BranchId{7}, InodeId{f})).value();
  EXPECT_EQ(InodeRow::decode(row->value)->header.epoch, 2u) << "written under the new epoch";
}

TEST_F(Interleaving, FreezingStopsAWriterThatHasRead) {
  then([&] {
    edit_head(real, BranchId{7}, [](HeadRow& head) { head.state = BranchState::frozen; });
  });
  EXPECT_EQ(v.create(1, "f").code(), Errc::read_only);
  EXPECT_EQ(w.lookup(1, "f").code(), Errc::not_found);
}

TEST_F(Interleaving, AttachingAnewFencesAWriterThatHasRead) {
  then([&] { let_in(real, BranchId{7}, SessionId{5}, 2); });
  EXPECT_EQ(v.create(1, "f").code(), Errc::fenced);
}

TEST_F(Interleaving, ASecondMountMakesTheUnlinkedFileWait) {
  edit_head(real, BranchId{7}, [](HeadRow& head) { head.only_session = SessionId{5}; });
  const std::uint64_t f = w.create(1, "f").value().inode();
  then([&] { edit_head(real, BranchId{7}, [](HeadRow& head) { head.only_session = {}; }); });
  ASSERT_TRUE(v.unlink(1, "f").ok());
  const UnlinkedKey key = parse_unlinked_key(w.rows(Table::unlinked).at(0).key).value();
  EXPECT_EQ(key.inode.value, f);
  EXPECT_GT(key.ready_ns, to_ns(v.clock().wall()));
}

TEST_F(Interleaving, TheSameCallTwiceAtOnce) {
  v.on.set_request(9);
  w.on = v.on;
  const std::uint64_t f = w.create(1, "f").value().inode();
  v.on.set_request(10);
  w.on = v.on;
  then([&] { EXPECT_EQ(w.unlink(1, "f")->inode(), f); });
  EXPECT_EQ(v.unlink(1, "f")->inode(), f);
}

TEST_F(Interleaving, TwoFlushesOfOneFile) {
  const std::uint64_t f = w.create(1, "f").value().inode();
  const pb::ReserveSlicesReply reserved = v.reserve(1).value();
  pb::CommitRequest request;
  request.set_inode(f);
  pb::NewSlice* slice = request.add_slices();
  slice->set_batch(reserved.batch());
  slice->mutable_entry()->set_slice(reserved.first());
  slice->mutable_entry()->set_length(10);
  slice->mutable_entry()->set_slice_length(10);
  then([&] { EXPECT_TRUE(w.write(f, 5, 10).ok()); });
  EXPECT_EQ(v.commit(request)->attributes().bytes(), 15u);
  EXPECT_EQ(w.map(f)->chunks(0).entries_size(), 2);
}

TEST_F(Interleaving, ACopyWhoseSourceDies) {
  const std::uint64_t f = w.create(1, "f").value().inode();
  const std::uint64_t g = w.create(1, "g").value().inode();
  ASSERT_TRUE(w.write(f, 0, 100).ok());
  const std::uint64_t slice = w.map(f)->chunks(0).entries(0).slice();
  then([&] { EXPECT_TRUE(w.truncate(f, 0).ok()); });
  EXPECT_EQ(v.copy(f, 0, g, 0, 100)->copied(), 0u);
  EXPECT_EQ(w.count_of(slice), 0) << "nothing refers to what is dying";
  EXPECT_TRUE(w.map(g)->chunks().empty());
}

TEST_F(Interleaving, ACopyFromAnImageThatIsBeingDeleted) {
  const BranchId image{9};
  make_branch(real, image);
  let_in(real, image, SessionId{5}, 3);
  TestVolume source(real, image);
  const std::uint64_t from = source.create(1, "x").value().inode();
  ASSERT_TRUE(source.write(from, 0, 10).ok());
  edit_head(real, image, [](HeadRow& head) { head.state = BranchState::frozen; });
  const std::uint64_t g = w.create(1, "g").value().inode();
  then([&] { edit_head(real, image, [](HeadRow& head) { head.state = BranchState::deleting; }); });
  EXPECT_EQ(v.copy(from, 0, g, 0, 10, image).code(), Errc::not_found);
  EXPECT_EQ(real.begin()->total(image_pins_key(image)).value(), 0);
}

TEST_F(Interleaving, OpenWithTruncateOfANameThatMoves) {
  const std::uint64_t f = w.create(1, "f").value().inode();
  ASSERT_TRUE(w.write(f, 0, 10).ok());
  ASSERT_TRUE(w.create(1, "g").ok());
  pb::OpenRequest request;
  *request.mutable_on() = v.on;
  request.set_inode(f);
  request.set_parent(1);
  request.set_name("f");
  request.set_truncate(true);
  pb::OpenReply reply;
  then([&] { EXPECT_TRUE(w.rename(1, "g", 1, "f").ok()); });
  ASSERT_TRUE(op_open(v.context(), v.call, request, &reply).ok());
  EXPECT_TRUE(reply.moved());
  EXPECT_EQ(w.attributes(f)->length(), 10u)
      << "the replaced file keeps its contents for those that hold it";
}

TEST_F(Interleaving, AFileThatIsPinnedWhileItIsFreed) {
  const std::uint64_t f = w.create(1, "f").value().inode();
  ASSERT_TRUE(w.unlink(1, "f").ok());
  const std::string row = w.rows(Table::unlinked).at(0).key;
  then([&] {
    EXPECT_TRUE(kv::run(real, kv::Durability::ordered, [&](kv::Transaction& t) -> Status {
                  t.put(pin_key(BranchId{7}, InodeId{f}, SessionId{5}), MarkRow{}.encode());
                  return {};
                }).ok());
  });
  EXPECT_EQ(free_unlinked_step(v.context(), row).code(), Errc::busy);
  EXPECT_TRUE(w.attributes(f).ok());
}

TEST_F(Interleaving, AWriteIntoAFileThatIsBeingFreed) {
  const std::uint64_t f = w.create(1, "f").value().inode();
  ASSERT_TRUE(w.write(f, 0, 10).ok());
  ASSERT_TRUE(w.unlink(1, "f").ok());
  const std::string row = w.rows(Table::unlinked).at(0).key;
  then([&] { EXPECT_TRUE(w.write(f, kChunkSize, 10).ok()); });
  EXPECT_TRUE(free_unlinked_step(v.context(), row).value());
  EXPECT_EQ(w.rows(Table::slices).size(), 1u) << "another file's";
  EXPECT_EQ(w.rows(Table::dead).size(), 2u);
}

class TrashInterleaving : public Interleaving {
 protected:
  TrashInterleaving() {
    edit_head(real, BranchId{7}, [](HeadRow& head) { head.trash_seconds = 100; });
    file = w.create(1, "f").value().inode();
    EXPECT_TRUE(w.unlink(1, "f").ok());
    key = parse_trashed_key(w.rows(Table::trashed).at(0).key).value();
  }
  static Status restore(TestVolume& by, const TrashedKey& what, std::uint64_t parent = 0) {
    pb::TrashRestoreRequest request;
    *request.mutable_on() = by.on;
    request.mutable_item()->set_inode(what.inode.value);
    request.mutable_item()->set_deleted_ns(what.deleted_ns);
    request.set_parent(parent);
    pb::NewEntry reply;
    return op_trash_restore(by.context(), by.call, request, &reply);
  }
  Status empty() {
    pb::TrashEmptyRequest request;
    request.set_branch(7);
    pb::TrashEmptyReply reply;
    return op_trash_empty(w.context(), w.call, request, &reply);
  }
  std::uint64_t file = 0;
  TrashedKey key;
};

TEST_F(TrashInterleaving, RestoreIntoARemovedDirectory) {
  const std::uint64_t d = w.mkdir(1, "d").value().inode();
  then([&] { EXPECT_TRUE(w.rmdir(1, "d").ok()); });
  EXPECT_EQ(restore(v, key, d).code(), Errc::not_found);
  EXPECT_EQ(w.attributes(file)->nlink(), 0u);
  EXPECT_EQ(w.rows(Table::trashed).size(), 2u);
}

TEST_F(TrashInterleaving, RestoreOfANameThatIsTakenMeanwhile) {
  then([&] { EXPECT_TRUE(w.create(1, "f").ok()); });
  EXPECT_EQ(restore(v, key).code(), Errc::exists);
  EXPECT_NE(w.lookup(1, "f")->inode(), file);
}

TEST_F(TrashInterleaving, RestoreOfWhatIsThrownAwayMeanwhile) {
  then([&] { EXPECT_TRUE(empty().ok()); });
  EXPECT_EQ(restore(v, key).code(), Errc::not_found);
  EXPECT_EQ(w.rows(Table::unlinked).size(), 1u);
}

TEST_F(TrashInterleaving, TwoRestores) {
  then([&] { EXPECT_TRUE(restore(w, key).ok()); });
  EXPECT_EQ(restore(v, key, 1).code(), Errc::not_found);
  EXPECT_EQ(w.lookup(1, "f")->inode(), file);
  EXPECT_EQ(w.total(What::trash_inodes), 0);
}

TEST_F(TrashInterleaving, CreateInADirectoryThatGoesToTheTrash) {
  const std::uint64_t d = w.mkdir(1, "d").value().inode();
  then([&] { EXPECT_TRUE(w.rmdir(1, "d").ok()); });
  EXPECT_EQ(v.create(d, "g").code(), Errc::not_found);
  EXPECT_EQ(w.attributes(d)->nlink(), 0u);
}

}  // namespace
}  // namespace starlane::meta
