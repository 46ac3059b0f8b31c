// Golden bytes of everything that travels, and what readers refuse.
#include <gtest/gtest.h>

#include "codec/crc32c.h"
#include "common/hex.h"
#include "common/rng.h"
#include "rpc/block_codec.h"
#include "rpc/frame_io.h"

namespace starlane::rpc {
namespace {

FrameHeader example() {
  FrameHeader header;
  header.kind = FrameKind::block_request;
  header.method = 0x0102;
  header.deadline_ms = 1000;
  header.sequence = 0x1112131415161718;
  header.mount_nonce = 2;
  header.session = 3;
  header.request = 4;
  header.trace = 5;
  header.map_epoch = 6;
  header.attachment_epoch = 7;
  header.bulk_length = 0x00400000;
  return header;
}

TEST(Frame, GoldenBytes) {
  FrameHeader header = example();
  seal(header, {}, bytes_of("123456789"));
  EXPECT_EQ(hex(image_of(header).first(100)),
            "534c4652"
            "01000200"
            "02010000"
            "e8030000"
            "1817161514131211"
            "0200000000000000"
            "0300000000000000"
            "0400000000000000"
            "0500000000000000"
            "0600000000000000"
            "0700000000000000"
            "0000400000000000"
            "09000000"
            "0000"
            "0000"
            "0000"
            "0000"
            "839206e3"  // CRC32C of "123456789", from RFC 3720
            "00000000");
  EXPECT_EQ(header.header_check, crc32c(image_of(header).first(100)));
  EXPECT_TRUE(check_header(header).ok());
}

TEST(Frame, AnyFlippedBitIsNoticed) {
  FrameHeader header = example();
  seal(header, {}, bytes_of("abc"));
  for (std::size_t bit = 0; bit < sizeof header * 8; ++bit) {
    FrameHeader damaged = header;
    reinterpret_cast<unsigned char*>(&damaged)[bit / 8] ^=
        static_cast<unsigned char>(1u << (bit % 8));
    EXPECT_EQ(check_header(damaged).code(), Errc::protocol) << bit;
  }
  EXPECT_TRUE(check_body(header, bytes_of("abc")).ok());
  EXPECT_EQ(check_body(header, bytes_of("abd")).code(), Errc::protocol);
}

TEST(Frame, AnotherMajorIsRefusedANewerMinorAndUnknownFlagsAreNot) {
  FrameHeader header = example();
  header.minor = 9;
  header.flags = 0xff;
  header.extension_length = 12;
  seal(header, {}, {});
  EXPECT_TRUE(check_header(header).ok());
  header.major = 2;
  seal(header, {}, {});
  const Status status = check_header(header);
  EXPECT_EQ(status.code(), Errc::protocol);
  EXPECT_NE(status.text().find("protocol 2"), std::string::npos);
}

TEST(Frame, LengthsAreCappedByKind) {
  const auto refused = [](auto change) {
    FrameHeader header = example();
    change(header);
    const auto payload = header.payload_length;
    const auto exposure = header.exposure_length;
    header.header_check = 0;
    header.header_check = crc32c(image_of(header).first(100));
    EXPECT_EQ(header.payload_length, payload);
    EXPECT_EQ(header.exposure_length, exposure);
    return check_header(header).code() == Errc::protocol;
  };
  EXPECT_FALSE(refused([](FrameHeader& h) { h.payload_length = kBlockRequestLimit; }));
  EXPECT_TRUE(refused([](FrameHeader& h) { h.payload_length = kBlockRequestLimit + 1; }));
  EXPECT_TRUE(refused([](FrameHeader& h) { h.payload_length = 0xffffffff; }));
  EXPECT_TRUE(refused([](FrameHeader& h) { h.bulk_length = kBulkLimit + 1; }));
  EXPECT_TRUE(refused([](FrameHeader& h) { h.bulk_length = ~std::uint64_t{0}; }));
  EXPECT_TRUE(refused([](FrameHeader& h) { h.capability_length = kCapabilityLimit + 1; }));
  EXPECT_TRUE(refused([](FrameHeader& h) { h.exposure_length = kExposureLimit + 1; }));
  EXPECT_TRUE(refused([](FrameHeader& h) { h.extension_length = kExtensionLimit + 1; }));
  EXPECT_TRUE(refused([](FrameHeader& h) { h.kind = FrameKind::meta_request; }));  // with bulk
  EXPECT_TRUE(refused([](FrameHeader& h) { h.kind = static_cast<FrameKind>(77); }));
}

TEST(Frame, PartsOfABodyAreFound) {
  FrameHeader header;
  header.capability_length = 2;
  header.exposure_length = 3;
  header.extension_length = 1;
  header.payload_length = 4;
  const ByteSpan body = bytes_of("CCEEEXPPPP");
  ASSERT_EQ(body_length(header), body.size());
  EXPECT_EQ(text_of(exposure_in(header, body)), "EEE");
  EXPECT_EQ(text_of(payload_in(header, body)), "PPPP");
}

TEST(Frame, ACallTravels) {
  Call call{SessionId(1), 2, 3, 4, 5, Deadline::after(std::chrono::hours(1))};
  FrameHeader header;
  put_call(call, header);
  EXPECT_GT(header.deadline_ms, 3'500'000u);
  EXPECT_LE(header.deadline_ms, 3'600'000u);
  const Call back = call_of(header);
  EXPECT_EQ(back.session, call.session);
  EXPECT_EQ(back.request, 2u);
  EXPECT_EQ(back.trace, 3u);
  EXPECT_EQ(back.map_epoch, 4u);
  EXPECT_EQ(back.attachment_epoch, 5u);
  EXPECT_GT(back.deadline.left(), std::chrono::minutes(55));
  FrameHeader forever;
  put_call(Call{}, forever);
  EXPECT_EQ(forever.deadline_ms, kDeadlineNever);
  EXPECT_EQ(call_of(forever).deadline.left(), Nanoseconds::max());
}

TEST(Frame, ErrorsTravelAndUnknownOnesAreIo) {
  FrameHeader header;
  header.status = static_cast<std::uint16_t>(Errc::quota);
  EXPECT_EQ(status_of(header, bytes_of("over\nquota")).to_string(), "quota: over quota");
  header.status = 999;
  EXPECT_EQ(status_of(header, bytes_of("x")).code(), Errc::io);
  EXPECT_EQ(capped(std::string(5000, 'x')).size(), kErrorTextLimit);
}

template <typename T>
Buffer encoded(const T& value) {
  Buffer out;
  encode(value, out);
  return out;
}

TEST(BlockWire, GoldenBytes) {
  const BlockId block{BranchId(0x0a), SliceId(0x0b), 0x0c};
  EXPECT_EQ(hex(encoded(PutBlock{TargetId(9), block, Safety::durable, {0x11223344, 0x55667788}})),
            "09000000"
            "0c000000"
            "0a00000000000000"
            "0b00000000000000"
            "02000000"
            "01000000"
            "44332211"
            "88776655");
  EXPECT_EQ(hex(encoded(GetBlock{TargetId(9), block, 0x1000, 0x2000})),
            "09000000"
            "0c000000"
            "0a00000000000000"
            "0b00000000000000"
            "00100000"
            "00200000"
            "0000000000000000");
  EXPECT_TRUE(hex(encoded(GetBlock{TargetId(9), block, 0x1000, 0x2000, true}))
                  .ends_with("0020000001000000"
                             "00000000"));
  EXPECT_EQ(hex(encoded(GetBlockReply{{1, 2}})),
            "02000000"
            "00000000"
            "01000000"
            "02000000");
  EXPECT_EQ(hex(encoded(TargetId(7))),
            "07000000"
            "00000000");
  EXPECT_EQ(hex(encoded(RemoveSlice{TargetId(7), BranchId(1), SliceId(2)})),
            "07000000"
            "00000000"
            "0100000000000000"
            "0200000000000000");
  EXPECT_EQ(hex(encoded(ListBlocks{TargetId(7), 100, "ab"})),
            "07000000"
            "64000000"
            "02000000"
            "00000000"
            "6162");
  EXPECT_EQ(hex(encoded(BlockListing{{{block, 5}}, "z"})),
            "01000000"
            "01000000"
            "0a00000000000000"
            "0b00000000000000"
            "0c000000"
            "05000000"
            "7a");
  TargetInfo info;
  info.target = TargetId(3);
  info.capacity_bytes = 4;
  info.free_bytes = 5;
  info.stored_bytes = 6;
  info.blocks = 7;
  info.directory = "d";
  info.device = "ef";
  EXPECT_EQ(hex(encoded(std::vector<TargetInfo>{info})),
            "01000000"
            "00000000"
            "03000000"
            "01000000"
            "0400000000000000"
            "0500000000000000"
            "0600000000000000"
            "0700000000000000"
            "01000000"
            "02000000"
            "64"
            "6566");
}

TEST(BlockWire, WhatIsDecodedIsWhatWasEncoded) {
  const BlockId block{BranchId(10), SliceId(11), 12};
  const auto put =
      decode_put(encoded(PutBlock{TargetId(9), block, Safety::durable, {7, 8}}), kChecksumUnit + 1);
  ASSERT_TRUE(put.ok()) << put.status().to_string();
  EXPECT_EQ(put->target, TargetId(9));
  EXPECT_EQ(put->block, block);
  EXPECT_EQ(put->safety, Safety::durable);
  EXPECT_EQ(put->unit_checksums, (std::vector<std::uint32_t>{7, 8}));
  const auto get = decode_get(encoded(GetBlock{TargetId(9), block, 1, 2}));
  ASSERT_TRUE(get.ok());
  EXPECT_EQ(get->block, block);
  EXPECT_EQ(get->offset, 1u);
  EXPECT_EQ(get->length, 2u);
  const auto list = decode_list(encoded(ListBlocks{TargetId(7), 0xffffffff, "cursor"}));
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(list->limit, kListLimit);
  EXPECT_EQ(list->cursor, "cursor");
  const auto listing = decode_listing(encoded(BlockListing{{{block, 5}, {block, 6}}, "next"}));
  ASSERT_TRUE(listing.ok());
  ASSERT_EQ(listing->blocks.size(), 2u);
  EXPECT_EQ(listing->blocks[1].length, 6u);
  EXPECT_EQ(listing->cursor, "next");
}

TEST(BlockWire, WrongRequestsAreRefused) {
  const BlockId block{BranchId(1), SliceId(2), 3};
  const Buffer put = encoded(PutBlock{TargetId(9), block, Safety::durable, {7, 8}});
  EXPECT_EQ(decode_put(put, 0).code(), Errc::invalid);
  EXPECT_EQ(decode_put(put, kBlockSize + 1).code(), Errc::invalid);
  EXPECT_EQ(decode_put(put, kChecksumUnit).code(), Errc::invalid);  // one checksum too many
  Buffer level = put;
  level[28] = std::byte{2};
  EXPECT_EQ(decode_put(level, kChecksumUnit + 1).code(), Errc::invalid);
  EXPECT_EQ(decode_get(encoded(GetBlock{TargetId(9), block, 0xffffffff, 0xffffffff})).code(),
            Errc::invalid);
}

TEST(BlockWire, TrailingBytesAreSkippedShortOnesRefused) {
  const BlockId block{BranchId(1), SliceId(2), 3};
  TargetInfo info;
  info.directory = "directory";
  info.device = "device";
  const auto each = [](const Buffer& whole, auto decode) {
    Buffer longer = whole;
    longer.resize(whole.size() + 5);
    EXPECT_TRUE(decode(ByteSpan(longer)).ok());
    for (std::size_t length = 0; length < whole.size(); ++length) {
      EXPECT_EQ(decode(ByteSpan(whole).first(length)).code(), Errc::protocol) << length;
    }
  };
  each(encoded(PutBlock{TargetId(9), block, Safety::durable, {7, 8}}),
       [](ByteSpan bytes) { return decode_put(bytes, 2 * kChecksumUnit); });
  each(encoded(GetBlock{TargetId(9), block, 1, 2}), decode_get);
  each(encoded(TargetId(1)), decode_target);
  each(encoded(RemoveSlice{TargetId(7), BranchId(1), SliceId(2)}), decode_remove_slice);
  each(encoded(ListBlocks{TargetId(7), 1, "cursor"}), decode_list);
  each(encoded(GetBlockReply{{1, 2}}), decode_get_reply);
  each(encoded(BlockListing{{{block, 5}, {block, 6}}, "next"}), decode_listing);
  each(encoded(std::vector<TargetInfo>{info, info}), decode_targets);
}

TEST(BlockWire, GiantCountsCostNothing) {
  const WireListReply listing{0xffffffff, 0};
  EXPECT_EQ(decode_listing(std::as_bytes(std::span(&listing, 1))).code(), Errc::protocol);
  const WireTargetsReply targets{0xffffffff, 0};
  EXPECT_EQ(decode_targets(std::as_bytes(std::span(&targets, 1))).code(), Errc::protocol);
  const WireGetReply get{0xffffffff, 0};
  EXPECT_EQ(decode_get_reply(std::as_bytes(std::span(&get, 1))).code(), Errc::protocol);
}

}  // namespace
}  // namespace starlane::rpc
