// Golden bytes of what is stored; fuzz_test.cc has bytes of every kind.
#include "block/fixture.h"

namespace starlane::block {
namespace {

std::string hex(ByteSpan bytes) {
  std::string text;
  for (const std::byte b : bytes) {
    text += "0123456789abcdef"[std::to_integer<unsigned>(b) >> 4];
    text += "0123456789abcdef"[std::to_integer<unsigned>(b) & 15];
  }
  return text;
}

RecordHeader example() {
  RecordHeader header;
  header.salt = 0x1122334455667788;
  header.sequence = 42;
  header.block = {BranchId(0xa1), SliceId(0xb2), 0xc3};
  Entry& entry = header.entry;
  entry.segment = 5;
  entry.offset = 0x6000;
  entry.length = entry.stored_length = 65'537;
  entry.key_id = 9;
  entry.checksums = {0xdeadbeef, 0x01020304};
  set_shape(entry);
  return header;
}

TEST(Format, RecordHeaderGoldenBytes) {
  const auto page = page_of(example());
  EXPECT_EQ(hex(ByteSpan(page).first(136)),
            "534c425201000100887766554433221105000000000000000060000000000000"
            "2a00000000000000a100000000000000b200000000000000c300000001000100"
            "0100010000100000002001000900000000001000020000000000000000000000"
            "000000000000000000000000000000000000000000000000000000003bfbac81"
            "efbeadde04030201");
  EXPECT_EQ(example().entry.payload_offset, 4096u);
  EXPECT_EQ(example().entry.record_length, 73'728u);
}

TEST(Format, RecordHeaderReadsBack) {
  const auto header = decode(page_of(example()));
  ASSERT_TRUE(header.ok()) << header.status().to_string();
  EXPECT_EQ(header->entry, example().entry);
  EXPECT_EQ(header->block, example().block);
  EXPECT_EQ(header->sequence, 42u);
  EXPECT_EQ(header->salt, example().salt);
}

TEST(Format, EveryFlippedBitOfAHeaderIsFound) {
  const auto good = page_of(example());
  for (std::size_t bit = 0; bit < 136 * 8; ++bit) {
    auto page = good;
    page[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    ASSERT_FALSE(decode(page).ok()) << bit;
  }
}

TEST(Format, SmallBlocksAreCompact) {
  Entry entry;
  entry.length = entry.stored_length = 5000;
  entry.checksums = {1};
  set_shape(entry);
  EXPECT_EQ(entry.payload_offset, 132u);
  EXPECT_EQ(entry.record_length, 8192u);
}

TEST(Format, IndexValueGoldenBytes) {
  Entry entry = example().entry;
  EXPECT_EQ(hex(bytes_of(encode_entry(entry))),
            "0100000005000000000000000060000000000000002001000010000001000100"
            "010001000900000010000200efbeadde04030201");
  EXPECT_EQ(decode_entry(encode_entry(entry)).value(), entry);
  entry.length = entry.stored_length = 3;
  entry.checksums = {7};
  entry.small = "abc";
  set_shape(entry);
  EXPECT_EQ(decode_entry(encode_entry(entry)).value(), entry);
}

TEST(Format, IdentityGoldenText) {
  const Identity identity{"c0ffee-1", TargetId(12), 0xabcdef};
  EXPECT_EQ(encode(identity),
            "starlane block target\nformat 1\ncluster c0ffee-1\ntarget 12\n"
            "salt 0000000000abcdef\ncrc32c 0e1a7ac0\n");
  EXPECT_EQ(decode_identity(encode(identity)).value(), identity);
}

TEST(Format, DamagedIdentitiesAreRefused) {
  const std::string good = encode(Identity{"c0ffee-1", TargetId(12), 0xabcdef});
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 4);
    EXPECT_FALSE(decode_identity(bad).ok()) << i;
    EXPECT_FALSE(decode_identity(good.substr(0, i)).ok()) << i;
  }
  EXPECT_FALSE(decode_identity(good + "\n").ok());
}

TEST(Format, SegmentNames) {
  EXPECT_EQ(segment_name(42), "segment.000000000000002a");
  EXPECT_EQ(segment_number("segment.000000000000002a"), 42u);
  EXPECT_EQ(segment_number("segment.00000000000000zz"), 0u);
  EXPECT_EQ(segment_number("segment.2a"), 0u);
  EXPECT_EQ(segment_number("identity"), 0u);
}

}  // namespace
}  // namespace starlane::block
