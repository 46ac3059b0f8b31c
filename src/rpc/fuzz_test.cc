// Every decoder of what a peer sends, fuzzed (common/fuzz.h): it may refuse, and must neither read
// beyond its bytes nor allocate by a number that it was told.
#include <google/protobuf/stubs/logging.h>

#include "common/fuzz.h"
#include "rpc/block_codec.h"
#include "rpc/dispatch.h"
#include "rpc/fake_services.h"
#include "rpc/frame_io.h"

namespace starlane::rpc {
namespace {

struct NoBulk final : BulkSource {
  explicit NoBulk(std::uint64_t bytes) : size_(bytes) {}
  std::uint64_t size() const override { return size_; }
  Status read(MutableByteSpan) override { return Status(Errc::io, "none"); }
  std::uint64_t size_;
};
struct Waste final : BulkSink {
  Status write(ByteSpan) override { return {}; }
};

constexpr std::uint64_t kBulk = 3 * kChecksumUnit;
Result<PutBlock> decode_put_of_bulk(ByteSpan payload) { return decode_put(payload, kBulk); }

/// What was taken is encoded as something that means the same.
template <typename T>
bool comes_back(Result<T> (*decode)(ByteSpan), ByteSpan bytes) {
  const Result<T> decoded = decode(bytes);
  if (!taken(decoded)) return false;
  Buffer once, twice;
  encode(*decoded, once);
  const Result<T> again = decode(once);
  EXPECT_TRUE(again.ok()) << again.status().to_string();
  if (again.ok()) encode(*again, twice);
  EXPECT_EQ(once, twice);
  return true;
}

bool payloads(ByteSpan bytes) {
  const bool any[] = {comes_back(decode_put_of_bulk, bytes), comes_back(decode_get, bytes),
                      comes_back(decode_target, bytes),      comes_back(decode_remove_slice, bytes),
                      comes_back(decode_list, bytes),        comes_back(decode_get_reply, bytes),
                      comes_back(decode_listing, bytes),     comes_back(decode_targets, bytes)};
  return std::ranges::count(any, true) != 0;
}

class Decoders {
 public:
  Decoders() : meta_([](auto, const Call&, const auto&, auto*) { return Status(); }) {}

  bool feed(ByteSpan bytes) {
    const bool framed = frame(bytes);
    for (const std::uint64_t size : {std::uint64_t{0}, kBulk, ~std::uint64_t{0}}) {
      NoBulk source(size);
      Waste sink;
      for (std::uint16_t method = 0; method < 9; ++method)
        (void)dispatch_block(blocks_, {}, method, bytes, source, sink, reply_);
    }
    bool called = false;
    for (std::uint16_t method = 0; method < 80; ++method)
      called = dispatch_meta(meta_, {}, method, bytes, reply_).status.ok() || called;
    return payloads(bytes) || framed || called;
  }

 private:
  /// As it is, which its checks refuse when one bit is wrong, and with checks that are right.
  bool frame(ByteSpan bytes) {
    FrameHeader header;
    if (bytes.size() < sizeof header) return false;
    std::memcpy(&header, bytes.data(), sizeof header);
    const ByteSpan rest = bytes.subspan(sizeof header);
    const bool sound = parts(header, rest);
    const std::uint64_t exposure = std::min<std::uint64_t>(header.exposure_length, rest.size());
    header.capability_length = header.extension_length = 0;
    seal(header, rest.first(exposure),
         rest.subspan(exposure, std::min<std::uint64_t>(rest.size() - exposure, 4096)));
    return parts(header, rest) || sound;
  }
  static bool parts(const FrameHeader& header, ByteSpan rest) {
    const Status checked = check_header(header);
    EXPECT_NE(checked.ok(), !checked.text().empty());
    if (!checked.ok() || body_length(header) > rest.size()) return false;
    const ByteSpan body = rest.first(body_length(header));
    const bool sound = check_body(header, body).ok();
    (void)exposure_in(header, body);
    (void)status_of(header, payload_in(header, body));
    FrameHeader again = header;
    put_call(call_of(header), again);
    return sound;
  }

  FakeMeta meta_;
  MemoryBlocks blocks_;
  Buffer reply_;
};

BlockListing random_listing(Rng& rng) {
  BlockListing listing;
  for (std::uint64_t n = rng.below(20); n > 0; --n)
    listing.blocks.push_back(
        {{BranchId(rng.next()), SliceId(rng.next()), static_cast<std::uint32_t>(rng.next())},
         static_cast<std::uint32_t>(rng.next())});
  listing.cursor.assign(rng.below(100), static_cast<char>(rng.next()));
  return listing;
}

std::vector<TargetInfo> random_targets(Rng& rng) {
  std::vector<TargetInfo> targets(rng.below(5));
  for (TargetInfo& one : targets)
    one = {TargetId(static_cast<std::uint32_t>(rng.next())),
           rng.next(),
           rng.next(),
           rng.next(),
           rng.next(),
           rng.one_in(2),
           std::string(rng.below(30), 'd'),
           std::string(rng.below(9), 'x')};
  return targets;
}

TEST(Fuzz, WhatAPeerSends) {
  Fuzz fuzz("rpc");
  Rng& rng = fuzz.rng();
  const auto add = [&](const auto& message) {
    Buffer encoded;
    encode(message, encoded);
    EXPECT_TRUE(payloads(encoded));
    fuzz.add(ByteSpan(encoded));
  };
  for (int i = 0; i < 20; ++i) {
    add(random_listing(rng));
    add(random_targets(rng));
    add(PutBlock{
        TargetId(1), {BranchId(rng.next()), SliceId(rng.next()), 3}, Safety::durable, {1, 2, 3}});
    add(ListBlocks{TargetId(2), 10, "cursor"});
  }
  Decoders decoders;
  google::protobuf::SetLogHandler(nullptr);  // of texts that are no UTF-8
  fuzz.set_allowance(1 << 20);               // protobuf's own blocks
  fuzz.run([&](ByteSpan bytes) { return decoders.feed(bytes); });
}

}  // namespace
}  // namespace starlane::rpc
