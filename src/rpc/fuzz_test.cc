// Every decoder of what a peer sends, fed with the files of tests/corpus/rpc and mutations of them:
// a decoder may refuse, and must neither read beyond its bytes (ASan) nor allocate by a number it
// was told. A crash's input joins the corpus.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "common/rng.h"
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

class Decoders {
 public:
  Decoders() : meta_([](auto, const Call&, const auto&, auto*) { return Status(); }) {}

  void feed(ByteSpan bytes, Rng& rng) {
    FrameHeader header;
    std::copy_n(bytes.begin(), std::min(bytes.size(), sizeof header),
                std::as_writable_bytes(std::span(&header, 1)).begin());
    if (check_header(header).ok() && body_length(header) <= bytes.size()) {
      const ByteSpan body = bytes.last(body_length(header));
      (void)check_body(header, body);
      (void)payload_in(header, body);
      (void)exposure_in(header, body);
      (void)status_of(header, payload_in(header, body));
    }
    (void)decode_get_reply(bytes);
    (void)decode_listing(bytes);
    (void)decode_targets(bytes);
    NoBulk source(rng.one_in(2) ? rng.below(3 * kChecksumUnit) : rng.next());
    Waste sink;
    for (std::uint16_t method = 0; method < 9; ++method) {
      (void)dispatch_block(blocks_, {}, method, bytes, source, sink, reply_);
    }
    const Outcome outcome =
        dispatch_meta(meta_, {}, static_cast<std::uint16_t>(rng.below(70)), bytes, reply_);
    (void)outcome;
  }

 private:
  FakeMeta meta_;
  MemoryBlocks blocks_;
  Buffer reply_;
};

std::vector<std::string> corpus() {
  std::vector<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator(SL_CORPUS "/rpc")) {
    std::ifstream file(entry.path(), std::ios::binary);
    all.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return all;
}

void mutate(std::string& bytes, const std::vector<std::string>& all, Rng& rng) {
  switch (rng.below(6)) {
    case 0:
      if (!bytes.empty()) bytes[rng.below(bytes.size())] ^= static_cast<char>(1 << rng.below(8));
      break;
    case 1:
      bytes.resize(rng.below(bytes.size() + 1));
      break;
    case 2:
      bytes.insert(rng.below(bytes.size() + 1), 1 + rng.below(8), static_cast<char>(rng.next()));
      break;
    case 3: {  // a number at its edges
      static constexpr std::uint32_t kEdges[] = {0,          1,          0x7fffffff, 0x80000000,
                                                 0xffffffff, 0xfffffffe, 1u << 16};
      const std::uint32_t edge = kEdges[rng.below(std::size(kEdges))];
      if (bytes.size() >= 4) std::memcpy(bytes.data() + rng.below(bytes.size() - 3), &edge, 4);
      break;
    }
    case 4:
      bytes += all[rng.below(all.size())];
      break;
    default:
      bytes.erase(0, rng.below(bytes.size() + 1));
      break;
  }
}

TEST(Fuzz, DecodersSurviveTheCorpusAndItsMutations) {
  const std::uint64_t seed = random_seed();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Rng rng(seed);
  const std::vector<std::string> all = corpus();
  ASSERT_GE(all.size(), 10u);
  Decoders decoders;
  for (const std::string& bytes : all) decoders.feed(bytes_of(bytes), rng);
  const char* rounds = std::getenv("SL_FUZZ_ROUNDS");
  for (std::uint64_t i = 0, n = rounds != nullptr ? std::strtoull(rounds, nullptr, 10) : 150'000;
       i < n; ++i) {
    std::string bytes = all[rng.below(all.size())];
    for (std::uint64_t times = 1 + rng.below(5); times > 0; --times) mutate(bytes, all, rng);
    // A copy of just its size, so that ASan sees the first byte beyond.
    const std::vector<std::byte> exact(bytes_of(bytes).begin(), bytes_of(bytes).end());
    decoders.feed(exact, rng);
  }
}

}  // namespace
}  // namespace starlane::rpc
