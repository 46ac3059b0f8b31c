#include "meta/rows.h"

#include <gtest/gtest.h>

#include "common/rng.h"
#include "meta/keys.h"
#include "meta/members/flush_marks.h"

namespace starlane::meta {
namespace {

std::string hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    out += kDigits[static_cast<unsigned char>(c) >> 4];
    out += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

TEST(Keys, Golden) {
  const BranchId branch{0x0102};
  const InodeId inode{0x0a0b};
  EXPECT_EQ(hex(head_key(branch)), "010000000000000000680000000000000102");
  EXPECT_EQ(hex(inode_key(branch, inode)), "020000000000000102490000000000000a0b");
  EXPECT_EQ(hex(entry_key(branch, inode, "ab")), "020000000000000102440000000000000a0b6162");
  EXPECT_EQ(hex(slices_key(branch, inode, 3)), "020000000000000102530000000000000a0b00000003");
  EXPECT_EQ(hex(count_key(SliceId{5})), "0300000000000000004b0000000000000005");
  EXPECT_EQ(hex(accumulator_key(branch, inode, What::changed, 2)),
            "020000000000000102410000000000000a0b0200000000000000020000000000000000");
  const DeadKey dead{branch, 1, 2, SliceId{3}, inode, 4, 5};
  EXPECT_EQ(hex(dead_key(dead)),
            "020000000000000102540000000000000001000000000000000200000000000000030000000000000a0b"
            "000000040000000000000005");
}

TEST(Keys, FlushMarksAndWindows) {
  EXPECT_EQ(hex(flushed_key()), "01000000000000000066");
  EXPECT_EQ(hex(window_key(0x0102)), "0100000000000000006c0000000000000102");
  EXPECT_EQ(hex(FlushedRow{{kEndedWell, 0}, 0x0102}.encode()),
            "010100000000000000000201000000000000");
  EXPECT_EQ(hex(WindowRow{{}, SliceId{7}}.encode()), "010000000000000000000700000000000000");
  EXPECT_EQ(FlushedRow::decode("garbage").code(), Errc::corrupt);
}

TEST(Keys, ParseGivesBackWhatWasWritten) {
  const DeadKey dead{BranchId{9}, 1, 2, SliceId{3}, InodeId{4}, 5, 6};
  const DeadKey back = parse_dead_key(dead_key(dead)).value();
  EXPECT_EQ(dead_key(back), dead_key(dead));
  const std::string key = entry_key(BranchId{9}, InodeId{4}, "name");
  const EntryKey entry = parse_entry_key(key).value();
  EXPECT_EQ(entry.name, "name");
  EXPECT_EQ(entry.parent, InodeId{4});
  EXPECT_EQ(parse_dead_key(dead_key(dead).substr(1)).code(), Errc::corrupt);
  EXPECT_EQ(parse_dead_key(dead_key(dead) + "x").code(), Errc::corrupt);
  EXPECT_EQ(parse_slices_key("").code(), Errc::corrupt);
  EXPECT_EQ(parse_unlinked_key(inode_key(BranchId{9}, InodeId{1})).code(), Errc::corrupt);
}

TEST(Keys, RangesHoldExactlyTheirRows) {
  const BranchId branch{1};
  const KeyRange range = entries_of(branch, InodeId{0xff});
  EXPECT_LE(range.first, entry_key(branch, InodeId{0xff}, "a"));
  EXPECT_LT(entry_key(branch, InodeId{0xff}, std::string(255, '\xff')), range.last);
  EXPECT_LE(range.last, entry_key(branch, InodeId{0x100}, "a"));
  EXPECT_LT(entry_key(branch, InodeId{0xfe}, std::string(255, '\xff')), range.first);
  const KeyRange chunks = slices_of(branch, InodeId{2}, 3, 5);
  EXPECT_EQ(chunks.first, slices_key(branch, InodeId{2}, 3));
  EXPECT_EQ(chunks.last, slices_key(branch, InodeId{2}, 5));
  EXPECT_EQ(slices_of(branch, InodeId{2}, std::uint64_t{1} << 40).first,
            slices_of(branch, InodeId{2}).last);
}

InodeRow sample_inode() {
  InodeRow row;
  row.header = {0, 3};
  row.mode = kRegular | 0644;
  row.nlink = 2;
  row.uid = 1000;
  row.length = 0x1122334455667788;
  row.mtime = {-5, 999'999'999};
  row.parent = InodeId{77};
  row.retention = 9;
  return row;
}

TEST(Rows, SizesAreFixed) {
  EXPECT_EQ(sample_inode().encode().size(), 154u);
  EXPECT_EQ(EntryRow{}.encode().size(), 19u);
  EXPECT_EQ(HeadRow{}.encode().size(), 92u);
  EXPECT_EQ(DeadRow{}.encode().size(), 28u);
  EXPECT_EQ(ReservedRow{}.encode().size(), 30u);
  EXPECT_EQ(UnlinkedRow{}.encode().size(), 18u);
  SlicesRow slices;
  Entry zero;
  zero.length = 1;
  zero.kind = SliceKind::zero;
  slices.entries.resize(3, zero);
  EXPECT_EQ(slices.encode().size(), kRowHeaderSize + 4 + 3 * kEntrySize);
}

TEST(Rows, AHeadFromBeforeTheTrashIsRead) {
  HeadRow row;
  row.quota_bytes = 5;
  row.trash_seconds = 7;
  std::string old = row.encode().substr(0, 84);
  old[1] = 0;  // flags
  const HeadRow back = HeadRow::decode(old).value();
  EXPECT_EQ(back.quota_bytes, 5u);
  EXPECT_EQ(back.trash_seconds, 0u);
  EXPECT_EQ(HeadRow::decode(back.encode())->quota_bytes, 5u);
  EXPECT_EQ(HeadRow::decode(row.encode())->trash_seconds, 7u);
}

TEST(Rows, GoldenTrashed) {
  const TrashedRow row{{}, SessionId{1}, 2, 3, "ab"};
  EXPECT_EQ(hex(row.encode()),
            "01000000000000000000"
            "0100000000000000"
            "0200000000000000"
            "0300000000000000"
            "6162");
  EXPECT_EQ(TrashedRow::decode(row.encode())->name, "ab");
  EXPECT_EQ(TrashedRow::decode(row.encode().substr(0, 34)).code(), Errc::corrupt);
  EXPECT_EQ(hex(trashed_key(BranchId{0x0102}, 3, InodeId{4})),
            "0200000000000001024200000000000000030000000000000004");
}

TEST(Rows, GoldenInode) {
  EXPECT_EQ(hex(sample_inode().encode()).substr(0, 20 + 8 * 6 + 16),
            "0100"
            "0300000000000000"
            "a4810000"
            "02000000"
            "e8030000"
            "00000000"
            "00000000"
            "00000000"
            "8877665544332211");
  const InodeRow back = InodeRow::decode(sample_inode().encode()).value();
  EXPECT_EQ(back.encode(), sample_inode().encode());
  EXPECT_EQ(back.mtime, (WallTime{-5, 999'999'999}));
}

TEST(Rows, GoldenEntry) {
  SlicesRow row;
  Entry entry{.position = 1,
              .length = 2,
              .offset = 3,
              .kind = SliceKind::data,
              .layout = 5,
              .codec = 6,
              .flags = 7,
              .slice = SliceId{8},
              .owner = BranchId{9},
              .birth = 10,
              .slice_length = 11,
              .placement_epoch = 12,
              .key_id = 13};
  row.entries.push_back(entry);
  EXPECT_EQ(hex(row.encode()),
            "01000000000000000000"
            "01000000"
            "010000000200000003000000"
            "00"
            "05"
            "06"
            "07"
            "0800000000000000"
            "0900000000000000"
            "0a0000000b0000000c0000000d000000");
}

SlicesRow inline_row() {
  SlicesRow row;
  Entry entry;
  entry.kind = SliceKind::inline_bytes;
  entry.slice = SliceId{4};
  entry.length = entry.slice_length = 5;
  row.entries.push_back(entry);
  entry.position = 10;
  entry.length = 2;
  row.entries.push_back(entry);  // the same slice again: its content is stored once
  entry.slice = SliceId{6};
  entry.position = 20;
  entry.slice_length = 2;
  row.entries.push_back(entry);
  row.inlines = {{SliceId{4}, "hello"}, {SliceId{6}, "yo"}};
  return row;
}

TEST(Rows, InlineContentIsStoredOnce) {
  const std::string bytes = inline_row().encode();
  EXPECT_EQ(bytes.size(), kRowHeaderSize + 4 + 3 * kEntrySize + 7);
  const SlicesRow back = SlicesRow::decode(bytes).value();
  EXPECT_EQ(back.inline_of(SliceId{4}), "hello");
  EXPECT_EQ(back.inline_of(SliceId{6}), "yo");
  EXPECT_EQ(back.entries, inline_row().entries);
}

template <typename Row>
void expect_robust(const std::string& good, Rng& rng) {
  ASSERT_TRUE(Row::decode(good).ok());
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(Row::decode(good.substr(0, size)).code(), Errc::corrupt) << size;
  }
  EXPECT_EQ(Row::decode(good + "x").code(), Errc::corrupt);
  std::string newer = good;
  newer[0] = 2;
  EXPECT_EQ(Row::decode(newer).code(), Errc::corrupt);
  for (int i = 0; i < 2000; ++i) {  // must answer, whatever it is
    std::string bad = good;
    for (int flips = 0; flips < 3; ++flips)
      bad[rng.below(bad.size())] = static_cast<char>(rng.next());
    const auto row = Row::decode(bad);
    if (row.ok()) {
      EXPECT_EQ(row.value().encode().size(), bad.size());
    }
  }
}

TEST(Rows, DamageIsAnswered) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed);
  expect_robust<InodeRow>(sample_inode().encode(), rng);
  EntryRow entry;
  entry.inode = InodeId{5};
  entry.type = 8;
  expect_robust<EntryRow>(entry.encode(), rng);
  expect_robust<HeadRow>(HeadRow{}.encode(), rng);
  expect_robust<DeadRow>(DeadRow{}.encode(), rng);
  ReservedRow reserved;
  reserved.count = 3;
  expect_robust<ReservedRow>(reserved.encode(), rng);
}

TEST(Rows, DamagedListsAreAnswered) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed);
  const std::string good = inline_row().encode();
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(SlicesRow::decode(good.substr(0, size)).code(), Errc::corrupt) << size;
  }
  for (int i = 0; i < 20'000; ++i) {
    std::string bad = good;
    for (int flips = 0; flips < 2; ++flips)
      bad[rng.below(bad.size())] = static_cast<char>(rng.next());
    const auto row = SlicesRow::decode(bad);
    if (!row.ok()) continue;
    for (const Entry& one : row.value().entries)
      EXPECT_LE(one.position + std::uint64_t{one.length}, kChunkSize);
    EXPECT_EQ(SlicesRow::decode(row.value().encode()).value().entries, row.value().entries);
  }
}

}  // namespace
}  // namespace starlane::meta
