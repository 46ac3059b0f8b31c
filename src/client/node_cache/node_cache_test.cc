// The rules of incarnations without a kernel: a small model of one plays it, many threads at once.
#include "client/node_cache/node_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <set>
#include <thread>

#include "client/node_cache/fake_file_io.h"
#include "common/rng.h"

namespace starlane::client {
namespace {

using namespace std::chrono_literals;
using Kind = OpenDecision::Kind;

constexpr std::uint64_t kLength = 3_MiB + 77;

class QuietNotifier final : public KernelNotifier {
 public:
  void invalidate_inode(Node, std::int64_t offset, std::int64_t) override {
    ++(offset < 0 ? attributes : pages);
  }
  void invalidate_entry(Node, std::string_view) override {}
  Status store(Node node, std::uint64_t, ByteSpan bytes) override {
    EXPECT_EQ(node.incarnation, 0);
    stored += bytes.size();
    return {};
  }
  std::atomic<std::uint64_t> stored{0}, attributes{0}, pages{0};
};

NodeCacheOptions small_options() {
  NodeCacheOptions options;
  options.budget_bytes = 64_MiB;
  options.min_file_bytes = 1_MiB;
  options.fill_threads = 2;
  options.fill_read_bytes = 256_KiB;
  return options;
}

std::shared_ptr<std::vector<std::byte>> content(std::uint64_t file, std::uint64_t version) {
  auto bytes = std::make_shared<std::vector<std::byte>>(kLength);
  Rng rng(file * 1000 + version);
  for (std::size_t i = 0; i + 8 <= bytes->size(); i += 8)
    store_little(bytes->data() + i, rng.next());
  return bytes;
}

FileKey file(std::uint64_t inode) { return {BranchId(5), InodeId(inode)}; }

class NodeCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  }
  void begin(const NodeCacheOptions& options = small_options()) {
    cache = std::make_unique<NodeCache>(io, options);
    cache->start(&notifier, {.passthrough = true});
    ASSERT_TRUE(cache->figures().enabled) << cache->figures().reason;
  }
  void put(std::uint64_t inode, std::uint64_t version) {
    io.put(file(inode), version, content(inode, version));
  }
  Incarnations::Open ask(std::uint64_t inode, std::uint8_t incarnation, std::uint64_t version,
                         std::uint32_t flags, std::uint32_t pid) {
    Incarnations::Open open;
    open.file = file(inode);
    open.node = {3, incarnation, InodeId(inode)};
    open.state = {version, kLength};
    open.flags = flags;
    open.unique = pid;
    open.pid = pid;
    return open;
  }
  // As the kernel opens a path: again after `moved`, with a LOOKUP between.
  OpenDecision open_path(std::uint64_t inode, std::uint64_t version, std::uint32_t flags,
                         std::uint32_t pid, Node& node) {
    node = {3, cache->preferred(file(inode)), InodeId(inode)};
    auto decision = cache->open(ask(inode, node.incarnation, version, flags, pid));
    EXPECT_TRUE(decision.ok()) << decision.status().to_string();
    if (decision.ok() && decision.value().kind == Kind::moved) {
      node.incarnation = cache->preferred(file(inode));
      decision = cache->open(ask(inode, node.incarnation, version, flags, pid));
      EXPECT_TRUE(decision.ok()) << decision.status().to_string();
      EXPECT_NE(decision.value().kind, Kind::moved) << "two ESTALEs to one open";
    }
    return decision.ok() ? decision.value() : OpenDecision{};
  }
  static bool holds(int fd, const std::vector<std::byte>& bytes) {
    std::vector<std::byte> got(bytes.size() + 1);
    return ::pread(fd, got.data(), got.size(), 0) == static_cast<ssize_t>(bytes.size()) &&
           std::equal(bytes.begin(), bytes.end(), got.begin());
  }

  FakeFileIo io;
  QuietNotifier notifier;
  std::unique_ptr<NodeCache> cache;
};

TEST_F(NodeCacheTest, AReaderIsMovedToTheCopy) {
  begin();
  put(10, 1);
  Node node;
  const auto decision = open_path(10, 1, O_RDONLY, 1, node);
  EXPECT_EQ(decision.kind, Kind::passthrough);
  EXPECT_NE(node.incarnation, 0);
  EXPECT_TRUE(holds(decision.backing_fd, *content(10, 1)));
  EXPECT_EQ(cache->preferred(file(10)), node.incarnation);
  EXPECT_EQ(cache->figures().filled_bytes, kLength);
}

TEST_F(NodeCacheTest, TheBackingFileCannotBeWritten) {
  begin();
  put(10, 1);
  Node node;
  const auto decision = open_path(10, 1, O_RDONLY, 1, node);
  const std::string path = "/proc/self/fd/" + std::to_string(decision.backing_fd);
  EXPECT_EQ(::open(path.c_str(), O_RDWR | O_CLOEXEC), -1);
  EXPECT_EQ(errno, EROFS);
}

TEST_F(NodeCacheTest, LookupNeverStartsAFill) {
  begin();
  put(10, 1);
  EXPECT_EQ(cache->preferred(file(10)), 0);
  EXPECT_EQ(io.fetched, 0U);
  EXPECT_EQ(cache->figures().files, 0U);
}

TEST_F(NodeCacheTest, WritersAndSmallFilesStayOnIncarnationZero) {
  begin();
  put(10, 1);
  Node node;
  EXPECT_EQ(open_path(10, 1, O_RDWR, 1, node).kind, Kind::cached);
  EXPECT_EQ(node.incarnation, 0);
  Node reader;
  EXPECT_EQ(open_path(10, 1, O_RDONLY, 2, reader).kind, Kind::cached);
  EXPECT_EQ(cache->preferred(file(10)), 0);
  cache->release(file(10), node, true);
  cache->release(file(10), reader, false);
  auto small = ask(11, 0, 1, O_RDONLY, 3);
  small.state.length = 100;
  EXPECT_EQ(cache->open(small).value().kind, Kind::cached);
  EXPECT_EQ(io.fetched, 0U);
}

TEST_F(NodeCacheTest, ADescriptorThatOnlyWritesGoesPastThePageCacheWherePassthroughIs) {
  put(10, 1);
  begin();
  EXPECT_EQ(cache->open(ask(10, 0, 1, O_WRONLY, 1)).value().kind, Kind::direct);
  EXPECT_EQ(cache->open(ask(10, 0, 1, O_RDWR, 2)).value().kind, Kind::cached);
  cache.reset();
  NodeCacheOptions options = small_options();
  options.passthrough = false;  // its readers live on the page cache
  cache = std::make_unique<NodeCache>(io, options);
  cache->start(&notifier, {.passthrough = true});
  EXPECT_EQ(cache->open(ask(10, 0, 1, O_WRONLY, 1)).value().kind, Kind::cached);
}

TEST_F(NodeCacheTest, AWriterIsMovedAwayFromTheCopyAndNeverPassedThrough) {
  begin();
  put(10, 1);
  Node reader, writer;
  const auto read = open_path(10, 1, O_RDONLY, 1, reader);
  ASSERT_EQ(read.kind, Kind::passthrough);
  EXPECT_EQ(open_path(10, 1, O_RDWR, 2, writer).kind, Kind::cached);
  EXPECT_EQ(writer.incarnation, 0);
  // Its descriptor opened again (/proc/self/fd) arrives where it was, twice.
  EXPECT_EQ(cache->open(ask(10, reader.incarnation, 1, O_RDWR, 9)).value().kind, Kind::moved);
  EXPECT_EQ(cache->open(ask(10, reader.incarnation, 1, O_RDWR, 9)).code(), Errc::text_busy);
  // What it writes is seen through the old incarnation, whose version follows.
  cache->local_write(file(10), 5, bytes_of("hello"));
  cache->local_commit(file(10), 1, {2, kLength});
  char got[5];
  EXPECT_EQ(::pread(read.backing_fd, got, 5, 5), 5);
  EXPECT_EQ(std::string_view(got, 5), "hello");
  cache->local_zero(file(10), 6, 3);
  EXPECT_EQ(::pread(read.backing_fd, got, 5, 5), 5);
  EXPECT_EQ(std::string_view(got, 5), std::string_view("h\0\0\0o", 5));
  cache->local_zero(file(10), kLength - 1, kLength);
  struct stat status {};
  EXPECT_EQ(::fstat(read.backing_fd, &status), 0);
  EXPECT_EQ(status.st_size, static_cast<off_t>(kLength)) << "as far as the file reaches";
  EXPECT_EQ(notifier.attributes, 1U);
  cache->release(file(10), writer, true);
  Node again;
  EXPECT_EQ(open_path(10, 2, O_RDONLY, 3, again).kind, Kind::passthrough);
  EXPECT_EQ(again.incarnation, reader.incarnation);
  EXPECT_EQ(io.fetched, kLength);
}

TEST_F(NodeCacheTest, ARemoteChangeRetiresTheCopyAndItsNumberRestsUntilForget) {
  begin();
  put(10, 1);
  Node old;
  const auto first = open_path(10, 1, O_RDONLY, 1, old);
  const auto later = content(10, 2);
  const auto put_later = [&](std::uint64_t version) { io.put(file(10), version, later); };
  put_later(2);
  cache->remote_change(file(10));
  EXPECT_EQ(cache->preferred(file(10)), 0);
  std::set<std::uint8_t> numbers{old.incarnation};
  for (std::uint64_t version = 2; version < 400; ++version) {
    put_later(version);
    cache->remote_change(file(10));
    Node node;
    const auto decision = open_path(10, version, O_RDONLY, 2, node);
    if (numbers.size() < 255) {
      ASSERT_EQ(decision.kind, Kind::passthrough) << version;
      ASSERT_TRUE(numbers.insert(node.incarnation).second)
          << "a number was used again before FORGET";
    } else {
      ASSERT_NE(decision.kind, Kind::passthrough) << "all numbers are known to the kernel";
    }
    cache->release(file(10), node, false);
  }
  EXPECT_TRUE(holds(first.backing_fd, *content(10, 1)));
  cache->forget(file(10), {3, 77, InodeId(10)});
  put_later(1000);
  cache->remote_change(file(10));
  Node node;
  EXPECT_EQ(open_path(10, 1000, O_RDONLY, 2, node).kind, Kind::passthrough);
  EXPECT_EQ(node.incarnation, 77);
}

TEST_F(NodeCacheTest, UnopenedCopiesAreEvictedOldestFirstAndPinnedOnesStay) {
  begin();
  const std::uint64_t fit = 64_MiB / 4_MiB;
  std::vector<Node> open;
  for (std::uint64_t i = 0; i < fit; ++i) {
    put(100 + i, 1);
    Node node;
    ASSERT_EQ(open_path(100 + i, 1, O_RDONLY, 1, node).kind, Kind::passthrough);
    open.push_back(node);
  }
  EXPECT_EQ(cache->figures().bytes, 64_MiB);
  put(200, 1);
  Node node;
  EXPECT_EQ(open_path(200, 1, O_RDONLY, 1, node).kind, Kind::cached) << "everything is pinned";
  EXPECT_EQ(node.incarnation, 0);
  cache->release(file(103), open[3], false);
  cache->release(file(101), open[1], false);
  EXPECT_EQ(open_path(200, 1, O_RDONLY, 1, node).kind, Kind::passthrough);
  EXPECT_EQ(cache->preferred(file(101)), 0) << "used the longest ago";
  EXPECT_NE(cache->preferred(file(103)), 0);
  EXPECT_EQ(cache->figures().bytes, 64_MiB);
}

TEST_F(NodeCacheTest, AFailedFillIsTriedAgainByTheNextOpen) {
  begin();
  put(10, 1);
  io.fail_next = 1;
  Node node;
  EXPECT_NE(open_path(10, 1, O_RDONLY, 1, node).kind, Kind::passthrough);
  cache->release(file(10), node, false);
  EXPECT_EQ(open_path(10, 1, O_RDONLY, 1, node).kind, Kind::passthrough);
}

TEST_F(NodeCacheTest, AWaitEndsWhenInterruptedAndWhenNoBytesArrive) {
  NodeCacheOptions options = small_options();
  options.stall_limit = 60s;
  begin(options);
  put(10, 1);
  io.blocked = true;
  std::thread waiting(
      [&] { EXPECT_EQ(cache->open(ask(10, 0, 1, O_RDONLY, 5)).code(), Errc::interrupted); });
  for (std::atomic<bool> over{false}; !over;) {  // as the front end repeats it
    cache->interrupt(5);
    std::this_thread::sleep_for(1ms);
    over = cache->figures().files == 1 && io.fetched == 0;
  }
  std::thread again([&] {
    for (int i = 0; i < 300; ++i, std::this_thread::sleep_for(1ms)) cache->interrupt(5);
  });
  waiting.join();
  again.join();
  io.blocked = false;
}

TEST_F(NodeCacheTest, WhatAReaderIsAtComesNextAndIsReadOnce) {
  NodeCacheOptions options = small_options();
  options.fill_threads = 1;
  options.wait_limit = 0s;
  options.stall_limit = 100ms;
  begin(options);
  put(10, 1);
  io.blocked = true;
  ASSERT_EQ(cache->open(ask(10, 0, 1, O_RDONLY, 1)).value().kind, Kind::direct);
  const FileState state{1, kLength};
  const std::uint64_t at = 9 * 256_KiB + 5;
  EXPECT_FALSE(cache->peek(file(10), state, at, 4096)) << "a small read hurries nobody";
  EXPECT_FALSE(cache->peek(file(10), state, at, 200'000)) << "nothing arrives";
  io.blocked = false;
  ASSERT_TRUE(cache->warm(file(10), state).ok());
  std::vector<std::uint64_t> chunks = io.begun();
  for (std::uint64_t& chunk : chunks) chunk /= 256_KiB;
  EXPECT_EQ(chunks, (std::vector<std::uint64_t>{0, 9, 10, 11, 1, 2, 3, 4, 5, 6, 7, 8, 12}));
  const auto piece = cache->peek(file(10), state, at, 200'000);
  ASSERT_TRUE(piece);
  const auto bytes = content(10, 1);
  EXPECT_TRUE(std::ranges::equal(piece->bytes, ByteSpan(*bytes).subspan(at, 200'000)));
}

TEST_F(NodeCacheTest, AnOpenLetsTheFillShowHowFastItIs) {
  NodeCacheOptions options = small_options();
  options.expected_bytes_per_second = 1;  // as if it took days
  begin(options);
  put(10, 1);
  Node node;
  EXPECT_EQ(open_path(10, 1, O_RDONLY, 1, node).kind, Kind::passthrough);
}

TEST_F(NodeCacheTest, WarmFillsAheadAndRefusesWhatDoesNotFit) {
  begin();
  put(10, 1);
  EXPECT_TRUE(cache->warm(file(10), {1, kLength}).ok());
  EXPECT_EQ(io.fetched, kLength);
  Node node;
  EXPECT_EQ(open_path(10, 1, O_RDONLY, 1, node).kind, Kind::passthrough);
  EXPECT_EQ(io.fetched, kLength);
  EXPECT_EQ(cache->warm(file(11), {1, 65_MiB}).code(), Errc::no_space);
}

TEST_F(NodeCacheTest, PushingStopsBeforeAWriterAndIsNotRepeated) {
  NodeCacheOptions options = small_options();
  options.passthrough = false;
  cache = std::make_unique<NodeCache>(io, options);
  cache->start(&notifier, {.passthrough = true});
  put(10, 1);
  Node node;
  EXPECT_EQ(open_path(10, 1, O_RDONLY, 1, node).kind, Kind::cached);
  while (notifier.stored < kLength) std::this_thread::sleep_for(1ms);
  cache->release(file(10), node, false);
  EXPECT_EQ(open_path(10, 1, O_RDONLY, 1, node).kind, Kind::cached);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(notifier.stored, kLength);
  Node writer;
  EXPECT_EQ(open_path(10, 1, O_RDWR, 2, writer).kind, Kind::cached);
  EXPECT_EQ(cache->warm(file(10), {1, kLength}).code(), Errc::unsupported);
}

// Threads open, read and close files while versions change; every passed-through open must show
// exactly the bytes of some version that was current while it was being opened, and keep them.
TEST_F(NodeCacheTest, SeededRacesNeverMixVersions) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  NodeCacheOptions options = small_options();
  options.budget_bytes = 24_MiB;  // so that copies are evicted all the time
  begin(options);
  constexpr std::uint64_t kFiles = 4, kVersions = 6;
  std::atomic<std::uint64_t> current[kFiles] = {};
  std::vector<std::vector<std::shared_ptr<std::vector<std::byte>>>> bytes(kFiles);
  for (std::uint64_t f = 0; f < kFiles; ++f) {
    for (std::uint64_t v = 0; v <= kVersions; ++v) bytes[f].push_back(content(f, v));
    current[f] = 1;
    io.put(file(f + 1), 1, bytes[f][1]);
  }
  std::atomic<std::uint64_t> passed{0};
  std::atomic<bool> over{false};
  const auto reader = [&](std::uint32_t pid) {
    Rng rng(seed + pid);
    std::deque<std::tuple<std::uint64_t, Node, int, std::uint64_t>> open;
    for (int round = 0; round < 150; ++round) {
      const std::uint64_t f = rng.below(kFiles);
      const std::uint64_t version = current[f];
      Node node;
      const auto decision = open_path(f + 1, version, O_RDONLY, pid, node);
      const int fd = decision.kind == Kind::passthrough ? decision.backing_fd : -1;
      open.emplace_back(f, node, fd, version);
      if (open.size() < 3) continue;
      const auto [g, where, backing, opened] = open.front();
      open.pop_front();
      if (backing >= 0) {
        ++passed;
        EXPECT_TRUE(holds(backing, *bytes[g][opened])) << "file " << g << " version " << opened;
      }
      cache->release(file(g + 1), where, false);
      if (rng.one_in(3)) cache->forget(file(g + 1), where);
    }
    for (const auto& [g, where, backing, opened] : open) cache->release(file(g + 1), where, false);
  };
  std::vector<std::thread> readers;
  for (std::uint32_t i = 0; i < 4; ++i) readers.emplace_back(reader, i + 1);
  std::thread changer([&] {
    Rng rng(seed);
    while (!over) {
      const std::uint64_t f = rng.below(kFiles);
      if (current[f] < kVersions) {
        io.put(file(f + 1), current[f] + 1, bytes[f][current[f] + 1]);
        cache->remote_change(file(f + 1));
        ++current[f];
      }
      std::this_thread::sleep_for(5ms);
    }
  });
  for (std::thread& thread : readers) thread.join();
  over = true;
  changer.join();
  EXPECT_GT(passed, 20U);
  cache->stop();
  EXPECT_EQ(cache->figures().bytes, 0U);
}

}  // namespace
}  // namespace starlane::client
