#include <gtest/gtest.h>

#include "common/bytes.h"
#include "kv/mem/mem_engine.h"
#include "meta/nodes.h"
#include "meta/ops/test_volume.h"
#include "meta/truncate.h"

namespace starlane::meta {
namespace {

class Files : public testing::Test {
 protected:
  Files() : v(engine) {
    HeadRow head;
    head.epoch = 3;
    make_branch(engine, BranchId{7}, head);
    file = v.create(1, "f").value().inode();
  }
  pb::Attributes at(std::uint64_t inode) { return v.attributes(inode).value(); }
  std::vector<DeadKey> dead() {
    std::vector<DeadKey> keys;
    for (const kv::Row& row : v.rows(Table::dead)) keys.push_back(parse_dead_key(row.key).value());
    return keys;
  }
  /// Every chunk's row against the file's own count, and the files' against the branch's.
  void expect_exact_bytes() {
    std::int64_t sum = 0;
    for (const kv::Row& row : v.rows(Table::inode)) {
      const InodeRow inode = InodeRow::decode(row.value).value();
      if (inode.nlink > 0) sum += static_cast<std::int64_t>(inode.bytes);
    }
    EXPECT_EQ(v.total(What::bytes), sum);
  }
  /// Frees what is unlinked, as housekeeping does.
  int free_all() {
    int steps = 0;
    for (const kv::Row& row : v.rows(Table::unlinked)) {
      for (;; ++steps) {
        const Result<bool> done = free_unlinked_step(v.context(), row.key);
        EXPECT_TRUE(done.ok()) << done.status().to_string();
        if (!done.ok() || *done) break;
      }
    }
    return steps;
  }

  kv::mem::MemEngine engine;
  TestVolume v;
  std::uint64_t file = 0;
};

TEST_F(Files, ACommitTakesAttributesAlong) {
  pb::CommitRequest request;
  request.set_inode(file);
  request.set_length(10);
  request.mutable_mtime()->set_seconds(50);
  request.set_kill_privileges(true);
  request.mutable_set()->set_mode(04751);
  request.mutable_set()->set_uid(5);
  request.mutable_set()->mutable_atime()->set_seconds(60);
  const pb::Attributes now = v.commit(request).value().attributes();
  EXPECT_EQ(now.mode(), 0104751u) << "what the writes took away came before";
  EXPECT_EQ(now.uid(), 5u);
  EXPECT_EQ(now.atime().seconds(), 60);
  EXPECT_EQ(now.mtime().seconds(), 50);
  EXPECT_EQ(at(file).mode(), now.mode());
  // An owner takes them, too, unless a mode gives them back.
  request.clear_kill_privileges();
  request.mutable_set()->clear_mode();
  EXPECT_EQ(v.commit(request).value().attributes().mode(), 0100751u);
}

TEST_F(Files, CommitChangesLengthVersionAndMapTogether) {
  const pb::Attributes before = at(file);
  v.clock().advance(std::chrono::seconds(1));
  const pb::CommitReply reply = v.write(file, 100, 50).value();
  EXPECT_EQ(reply.previous_version(), before.version());
  EXPECT_EQ(reply.attributes().length(), 150u);
  EXPECT_EQ(reply.attributes().bytes(), 50u);
  EXPECT_EQ(reply.attributes().mtime().seconds(), v.clock().wall().seconds);
  const pb::FileMapReply map = v.map(file).value();
  EXPECT_EQ(map.version(), reply.attributes().version());
  EXPECT_EQ(map.length(), 150u);
  ASSERT_EQ(map.chunks_size(), 1);
  EXPECT_EQ(map.chunks(0).entries(0).owner(), 7u);
  EXPECT_EQ(v.total(What::bytes), 50);
}

TEST_F(Files, OverwrittenSlicesDieOnce) {
  const pb::CommitReply first = v.write(file, 0, 100).value();
  const std::uint64_t slice = v.map(file)->chunks(0).entries(0).slice();
  ASSERT_TRUE(v.write(file, 10, 20).ok());
  EXPECT_TRUE(dead().empty()) << "the first still shows at both ends";
  ASSERT_TRUE(v.write(file, 0, 100).ok());
  ASSERT_EQ(dead().size(), 2u);
  EXPECT_EQ(dead()[0].slice.value, slice);
  EXPECT_EQ(dead()[0].birth, 3u);
  EXPECT_EQ(dead()[0].death, 3u);
  EXPECT_EQ(v.total(What::held), 120);
  EXPECT_EQ(v.total(What::bytes), 100);
  EXPECT_EQ(v.map(file)->chunks(0).entries_size(), 1);
}

TEST_F(Files, CommitIsDoneOnce) {
  const pb::ReserveSlicesReply reserved = v.reserve(4).value();
  pb::CommitRequest request;
  request.set_inode(file);
  pb::NewSlice* slice = request.add_slices();
  slice->set_batch(reserved.batch());
  slice->mutable_entry()->set_slice(reserved.first());
  slice->mutable_entry()->set_length(10);
  slice->mutable_entry()->set_slice_length(10);
  const pb::CommitReply first = v.commit(request).value();
  ASSERT_TRUE(v.write(file, 0, 10).ok());  // another's write came between
  const pb::CommitReply again = v.commit(request).value();
  EXPECT_EQ(again.attributes().version(), first.attributes().version() + 1);
  EXPECT_NE(v.map(file)->chunks(0).entries(0).slice(), reserved.first())
      << "the older write did not come back";
  pb::NewSlice* second = request.add_slices();
  *second = request.slices(0);
  second->mutable_entry()->set_slice(reserved.first() + 1);
  EXPECT_EQ(v.commit(request).code(), Errc::invalid) << "half of it has happened";
}

TEST_F(Files, OnlyReservedSlicesAreTaken) {
  const pb::ReserveSlicesReply reserved = v.reserve(4).value();
  pb::CommitRequest request;
  request.set_inode(file);
  pb::NewSlice* slice = request.add_slices();
  slice->mutable_entry()->set_length(10);
  slice->mutable_entry()->set_slice_length(10);
  slice->mutable_entry()->set_slice(reserved.first() + 4);
  EXPECT_EQ(v.commit(request).code(), Errc::invalid) << "no reservation named";
  slice->set_batch(reserved.batch());
  EXPECT_EQ(v.commit(request).code(), Errc::invalid) << "behind the reservation";
  slice->mutable_entry()->set_slice(reserved.first() - 1);
  EXPECT_EQ(v.commit(request).code(), Errc::invalid) << "before it";
  slice->set_batch(reserved.batch() + 1);
  slice->mutable_entry()->set_slice(reserved.first() + 1);
  EXPECT_EQ(v.commit(request).code(), Errc::invalid) << "no such reservation";
  slice->set_batch(reserved.batch());
  slice->mutable_entry()->set_offset(1);
  EXPECT_EQ(v.commit(request).code(), Errc::invalid) << "beyond the slice";
  slice->mutable_entry()->set_offset(0);
  slice->mutable_entry()->set_position(static_cast<std::uint32_t>(kChunkSize) - 5);
  EXPECT_EQ(v.commit(request).code(), Errc::invalid) << "beyond the chunk";
  slice->mutable_entry()->set_position(0);
  slice->mutable_entry()->set_kind(pb::SliceEntry::ORIGIN);
  EXPECT_EQ(v.commit(request).code(), Errc::invalid);
  slice->mutable_entry()->set_kind(pb::SliceEntry::DATA);
  EXPECT_TRUE(v.commit(request).ok());
  EXPECT_EQ(v.reserve(0).code(), Errc::invalid);
  EXPECT_EQ(v.reserve(65).code(), Errc::invalid);
}

TEST_F(Files, ASliceShadowedInItsOwnCommitIsDeadAtOnce) {
  const pb::ReserveSlicesReply reserved = v.reserve(2).value();
  pb::CommitRequest request;
  request.set_inode(file);
  for (std::uint64_t i = 0; i < 2; ++i) {
    pb::NewSlice* slice = request.add_slices();
    slice->set_batch(reserved.batch());
    slice->mutable_entry()->set_slice(reserved.first() + i);
    slice->mutable_entry()->set_length(10);
    slice->mutable_entry()->set_slice_length(10);
  }
  ASSERT_TRUE(v.commit(request).ok());
  ASSERT_EQ(dead().size(), 1u);
  EXPECT_EQ(dead()[0].slice.value, reserved.first());
}

TEST_F(Files, TruncateCutsAndNeverBringsBack) {
  ASSERT_TRUE(v.write(file, 0, 1000).ok());
  EXPECT_EQ(v.truncate(file, 400)->bytes(), 400u);
  EXPECT_EQ(v.truncate(file, 1000)->length(), 1000u);
  EXPECT_EQ(at(file).bytes(), 400u);
  const auto bytes = v.read(file, 0, 1000);
  EXPECT_NE(bytes[399], 0u);
  EXPECT_EQ(bytes[400], 0u);
  EXPECT_EQ(v.truncate(file, 0)->bytes(), 0u);
  EXPECT_EQ(dead().size(), 1u);
  EXPECT_TRUE(v.rows(Table::slices).empty());
  EXPECT_EQ(v.truncate(file, kMaxLength + 1).code(), Errc::file_too_large);
  EXPECT_EQ(v.truncate(file, kMaxLength)->length(), kMaxLength);
  EXPECT_EQ(v.truncate(file, 0)->length(), 0u);
  expect_exact_bytes();
}

TEST_F(Files, LongFilesAreShortenedInSteps) {
  TestVolume small(engine, BranchId{7}, {.chunks_a_step = 4});
  for (std::uint64_t chunk = 0; chunk < 23; ++chunk) {
    ASSERT_TRUE(small.write(file, chunk * 3 * kChunkSize + 5, 10).ok());
  }
  const std::uint64_t version = at(file).version();
  const pb::Attributes cut = small.truncate(file, 3 * kChunkSize + 7).value();
  EXPECT_EQ(cut.length(), 3 * kChunkSize + 7);
  EXPECT_EQ(cut.bytes(), 12u);
  EXPECT_GT(cut.version(), version);
  EXPECT_EQ(dead().size(), 21u);
  EXPECT_EQ(v.rows(Table::slices).size(), 2u);
  for (std::uint64_t chunk = 2; chunk < 12; ++chunk)
    ASSERT_TRUE(small.write(file, chunk * kChunkSize, 10).ok());
  pb::OpenRequest open;
  *open.mutable_on() = v.on;
  open.set_inode(file);
  open.set_truncate(true);
  pb::OpenReply reply;
  ASSERT_TRUE(op_open(small.context(), v.call, open, &reply).ok());
  EXPECT_EQ(reply.attributes().length(), 0u);
  EXPECT_TRUE(v.rows(Table::slices).empty());
  expect_exact_bytes();
}

TEST_F(Files, AppendFindsItsPlace) {
  ASSERT_TRUE(v.write(file, 0, 100).ok());
  const auto append = [this](std::uint32_t length) {
    const pb::ReserveSlicesReply reserved = v.reserve(1).value();
    pb::CommitRequest request;
    request.set_inode(file);
    request.set_append(true);
    pb::NewSlice* slice = request.add_slices();
    slice->set_batch(reserved.batch());
    slice->mutable_entry()->set_slice(reserved.first());
    slice->mutable_entry()->set_length(length);
    slice->mutable_entry()->set_slice_length(length);
    return v.commit(request).value();
  };
  EXPECT_EQ(append(50).appended_at(), 100u);
  EXPECT_EQ(append(50).appended_at(), 150u);
  ASSERT_TRUE(v.truncate(file, kChunkSize - 10).ok());
  const pb::CommitReply across = append(100);
  EXPECT_EQ(across.appended_at(), kChunkSize - 10);
  EXPECT_EQ(across.attributes().length(), kChunkSize + 90);
  const std::uint64_t slice = v.map(file)->chunks(1).entries(0).slice();
  EXPECT_EQ(v.count_of(slice), 1) << "one reference in each of two chunks";
  const auto bytes = v.read(file, kChunkSize - 10, 10);
  EXPECT_EQ(bytes[0], slice << 32);
  EXPECT_EQ(v.read(file, kChunkSize, 1)[0], (slice << 32) + 10);
}

TEST_F(Files, SmallContentsStayInOneInlineEntry) {
  ASSERT_TRUE(v.write_inline(file, 0, "hello").ok());
  ASSERT_TRUE(v.write_inline(file, 5, " world").ok());
  const pb::FileMapReply map = v.map(file).value();
  ASSERT_EQ(map.chunks(0).entries_size(), 1);
  EXPECT_EQ(map.chunks(0).entries(0).inline_data(), "hello world");
  EXPECT_EQ(at(file).bytes(), 11u);
  ASSERT_TRUE(v.write(file, 0, 100'000).ok());
  EXPECT_TRUE(dead().empty()) << "inline content has no blocks to remove";
  EXPECT_EQ(v.write_inline(file, 0, std::string(4097, 'x')).code(), Errc::invalid);
  Status last;
  for (std::uint64_t i = 0; i < 40 && last.ok(); ++i) {
    last = v.write_inline(file, i * 8192, std::string(4096, 'x')).status();
  }
  EXPECT_EQ(last.code(), Errc::too_big);
}

TEST_F(Files, ListsHaveALimit) {
  TestVolume small(engine, BranchId{7}, {.long_list = 4, .max_list = 8});
  for (std::uint64_t i = 0; i < 8; ++i) {
    ASSERT_TRUE(small.write(file, i * 10, 5).ok());
    EXPECT_EQ(v.rows(Table::long_chunk).size(), i < 4 ? 0u : 1u);
  }
  EXPECT_EQ(small.write(file, 90, 5).code(), Errc::busy);
  EXPECT_TRUE(small.write(file, 0, 70).ok()) << "what shortens the list is let through";
  EXPECT_EQ(v.map(file)->chunks(0).entries_size(), 2);
}

TEST_F(Files, FallocateAndHoles) {
  ASSERT_TRUE(v.write(file, 0, 100).ok());
  EXPECT_EQ(v.fallocate(file, 0, 50, 100)->length(), 150u);
  EXPECT_EQ(v.fallocate(file, 1, 500, 100)->length(), 150u);
  EXPECT_EQ(v.fallocate(file, 0, 0, 0).code(), Errc::invalid);
  EXPECT_EQ(v.fallocate(file, 2, 0, 10).code(), Errc::unsupported);
  EXPECT_EQ(v.fallocate(1, 0, 0, 10).code(), Errc::is_directory);
  EXPECT_EQ(v.fallocate(file, 0, kMaxLength, 1).code(), Errc::file_too_large);
  const pb::Attributes punched = v.fallocate(file, 3, 10, 20).value();
  EXPECT_EQ(punched.bytes(), 80u);
  EXPECT_EQ(punched.length(), 150u);
  const auto bytes = v.read(file, 0, 150);
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(bytes[i] == 0, i >= 10 && i < 30) << i;
  EXPECT_EQ(v.fallocate(file, 16, 0, 1000)->length(), 1000u);
  EXPECT_EQ(at(file).bytes(), 0u);
  EXPECT_EQ(dead().size(), 1u);
  expect_exact_bytes();
}

TEST_F(Files, HolesInManyChunksComeInSteps) {
  TestVolume small(engine, BranchId{7}, {.chunks_a_step = 3});
  for (std::uint64_t chunk = 0; chunk < 10; ++chunk)
    ASSERT_TRUE(v.write(file, chunk * kChunkSize, 10).ok());
  ASSERT_TRUE(small.fallocate(file, 3, 5, 8 * kChunkSize).ok());
  EXPECT_EQ(at(file).bytes(), 5u + 5u + 10u);
  EXPECT_EQ(at(file).length(), 9 * kChunkSize + 10);
}

TEST_F(Files, CopySharesSlices) {
  ASSERT_TRUE(v.write(file, 0, 1000).ok());
  const std::uint64_t slice = v.map(file)->chunks(0).entries(0).slice();
  const std::uint64_t other = v.create(1, "g").value().inode();
  EXPECT_EQ(v.copy(file, 100, other, kChunkSize - 300, 5000)->copied(), 900u)
      << "to the source's end";
  EXPECT_EQ(at(other).length(), kChunkSize + 600);
  EXPECT_EQ(at(other).bytes(), 900u);
  EXPECT_EQ(v.count_of(slice), 2) << "one reference more in each of two chunks";
  EXPECT_EQ(v.read(other, kChunkSize - 300, 1)[0], (slice << 32) + 100);
  EXPECT_EQ(v.read(other, kChunkSize, 1)[0], (slice << 32) + 400);
  EXPECT_EQ(v.copy(file, 0, other, 0, 10)->copied(), 10u);
  EXPECT_EQ(v.count_of(slice), 2) << "the first chunk refers to it already";
  EXPECT_EQ(v.copy(file, 1000, other, 0, 10)->copied(), 0u);
  EXPECT_EQ(v.copy(file, 0, file, 999, 1000).code(), Errc::invalid);
  EXPECT_EQ(v.copy(file, 0, file, 1000, 1000)->copied(), 1000u);
  EXPECT_EQ(v.copy(999, 0, file, 0, 1).code(), Errc::not_found);
  EXPECT_EQ(v.copy(1, 0, file, 0, 1).code(), Errc::is_directory);
  EXPECT_EQ(v.total(What::bytes), 2000 + 910);
  expect_exact_bytes();
}

TEST_F(Files, CopyOfHolesAndInlineContent) {
  ASSERT_TRUE(v.write_inline(file, 10, "abc").ok());
  ASSERT_TRUE(v.truncate(file, 30).ok());
  const std::uint64_t other = v.create(1, "g").value().inode();
  ASSERT_TRUE(v.write(other, 0, 40).ok());
  EXPECT_EQ(v.copy(file, 0, other, 5, 100)->copied(), 30u);
  const auto bytes = v.read(other, 0, 40);
  for (std::size_t i = 0; i < 40; ++i) {
    const bool hole = i >= 5 && i < 35 && (i < 15 || i >= 18);
    EXPECT_EQ(bytes[i] == 0, hole) << i;
  }
  EXPECT_EQ(bytes[15], static_cast<std::uint64_t>('a'));
  EXPECT_EQ(at(other).bytes(), 10u + 3u);
}

TEST_F(Files, CopyFromAFrozenImagePinsIt) {
  const BranchId image{9};
  HeadRow head;
  head.kind = BranchKind::image;
  make_branch(engine, image, head);
  TestVolume source(engine, image);
  const std::uint64_t from = source.create(1, "model").value().inode();
  ASSERT_TRUE(source.write(from, 0, 1000).ok());
  edit_head(engine, image, [](HeadRow& row) { row.state = BranchState::frozen; });
  EXPECT_EQ(source.write(from, 0, 1).code(), Errc::read_only);
  EXPECT_EQ(source.create(1, "x").code(), Errc::read_only);
  const auto pins = [&] { return engine.begin()->total(image_pins_key(image)).value(); };
  ASSERT_TRUE(v.copy(from, 0, file, 0, 1000, image).ok());
  EXPECT_EQ(pins(), 1);
  const pb::SliceEntry entry = v.map(file)->chunks(0).entries(0);
  EXPECT_EQ(entry.owner(), image.value);
  EXPECT_EQ(v.count_of(entry.slice()), 0);
  const std::uint64_t other = v.create(1, "g").value().inode();
  ASSERT_TRUE(v.copy(file, 0, other, 0, 1000).ok());
  EXPECT_EQ(pins(), 2) << "a copy of the copy pins as well";
  ASSERT_TRUE(v.truncate(file, 0).ok());
  const kv::Row row = v.rows(Table::dead).at(0);
  EXPECT_EQ(DeadRow::decode(row.value)->flags, kPinned);
  EXPECT_EQ(DeadRow::decode(row.value)->owner, image);
}

TEST_F(Files, CopyAcrossSessionsNeedsTheSourceAttached) {
  const BranchId image{9};
  make_branch(engine, image);
  TestVolume source(engine, image);
  const std::uint64_t from = source.create(1, "x").value().inode();
  ASSERT_TRUE(source.write(from, 0, 10).ok());
  let_in(engine, BranchId{7}, SessionId{5}, 1);
  v.on.set_session(5);
  EXPECT_EQ(v.copy(from, 0, file, 0, 10, image).code(), Errc::access);
  let_in(engine, image, SessionId{5}, 2);
  EXPECT_TRUE(v.copy(from, 0, file, 0, 10, image).ok());
  edit_head(engine, image, [](HeadRow& row) { row.state = BranchState::deleting; });
  EXPECT_EQ(v.copy(from, 0, file, 0, 10, image).code(), Errc::not_found);
}

TEST_F(Files, UnlinkedFilesWaitForThoseThatMayHoldThem) {
  edit_head(engine, BranchId{7}, [](HeadRow& row) {
    row.attachments = 1;
    row.only_session = SessionId{5};
  });
  let_in(engine, BranchId{7}, SessionId{5}, 1);
  v.on.set_session(5);
  ASSERT_TRUE(v.write(file, 0, 100).ok());
  ASSERT_TRUE(v.unlink(1, "f", true).ok());
  EXPECT_EQ(v.rows(Table::pin).size(), 1u);
  const auto ready = [this] {
    return parse_unlinked_key(v.rows(Table::unlinked).at(0).key)->ready_ns;
  };
  EXPECT_EQ(ready(), to_ns(v.clock().wall())) << "nobody else can have it open";
  EXPECT_EQ(v.total(What::bytes), 0);
  ASSERT_TRUE(v.write(file, 0, 200).ok()) << "it is still open";
  EXPECT_EQ(v.total(What::bytes), 0);
  EXPECT_EQ(at(file).length(), 200u);
  const std::string row = v.rows(Table::unlinked).at(0).key;
  EXPECT_EQ(free_unlinked_step(v.context(), row).code(), Errc::busy) << "pinned";
  ASSERT_TRUE(kv::run(engine, kv::Durability::ordered, [&](kv::Transaction& t) -> Status {
                t.del(pin_key(BranchId{7}, InodeId{file}, SessionId{5}));
                return {};
              }).ok());
  free_all();
  EXPECT_EQ(v.attributes(file).code(), Errc::not_found);
  EXPECT_EQ(dead().size(), 2u);
  EXPECT_TRUE(v.rows(Table::unlinked).empty());
  EXPECT_TRUE(v.rows(Table::slices).empty());
  edit_head(engine, BranchId{7}, [](HeadRow& head) { head.only_session = {}; });
  ASSERT_TRUE(v.create(1, "g").ok());
  ASSERT_TRUE(v.unlink(1, "g").ok());
  EXPECT_EQ(ready(), to_ns(v.clock().wall()) + 2 * 20'000'000'000ull)
      << "another session may hold it";
}

TEST_F(Files, WhatIsNeverOpenedGoesWithItsLastName) {
  const std::uint64_t link = v.symlink(1, "s", "target").value().inode();
  ASSERT_TRUE(v.link(link, 1, "again").ok());
  EXPECT_EQ(v.total(What::bytes), 6);
  ASSERT_TRUE(v.unlink(1, "s").ok());
  ASSERT_TRUE(v.unlink(1, "again").ok());
  EXPECT_EQ(v.attributes(link).code(), Errc::not_found);
  for (const Table table : {Table::unlinked, Table::slices, Table::name, Table::dead}) {
    EXPECT_TRUE(v.rows(table).empty());
  }
  EXPECT_EQ(v.total(What::bytes), 0);
  EXPECT_EQ(v.total(What::inodes), 2);
}

TEST_F(Files, AppendsOfAnyPlaceAreBounded) {
  pb::CommitRequest request;
  request.set_inode(file);
  request.set_append(true);
  pb::NewSlice* slice = request.add_slices();
  slice->mutable_entry()->set_kind(pb::SliceEntry::ZERO);
  slice->mutable_entry()->set_length(1);
  slice->set_chunk(0xffff'ffff);
  EXPECT_EQ(v.commit(request)->attributes().length(), kMaxLength - kChunkSize + 1);
  EXPECT_EQ(v.commit(request).code(), Errc::file_too_large);
}

TEST_F(Files, FreeingIsBounded) {
  TestVolume small(engine, BranchId{7}, {.chunks_a_step = 4});
  for (std::uint64_t chunk = 0; chunk < 17; ++chunk)
    ASSERT_TRUE(v.write(file, chunk * kChunkSize, 10).ok());
  ASSERT_TRUE(v.unlink(1, "f").ok());
  const std::string row = v.rows(Table::unlinked).at(0).key;
  int steps = 1;
  while (!free_unlinked_step(small.context(), row).value()) ++steps;
  EXPECT_EQ(steps, 5);
  EXPECT_EQ(dead().size(), 17u);
  EXPECT_EQ(v.total(What::held), 170);
  EXPECT_TRUE(free_unlinked_step(small.context(), row).value()) << "gone already";
}

}  // namespace
}  // namespace starlane::meta
