// The node cache over a real mount: what processes see, and what it costs.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstring>
#include <map>
#include <mutex>

#include "client/incarnations.h"
#include "client/node_cache/fake_file_io.h"
#include "fuse/memory_vfs.h"
#include "fuse/testing.h"

namespace starlane::fuse {
namespace {

using namespace std::chrono_literals;
using client::FakeFileIo;
using client::FileState;
using client::Node;
using Bytes = std::vector<std::byte>;

constexpr std::uint64_t kLength = 128_MiB + 12345;
constexpr BranchId kBranch{7};

// A memory file system whose large files go through the node cache, as the client's mount does it.
class CachedVfs final : public ProbedVfs {
 public:
  CachedVfs(MemoryVfs& memory, client::Incarnations& cache) : ProbedVfs(memory), cache_(cache) {}

  void start(client::KernelNotifier* notifier, const client::KernelFeatures& kernel) override {
    notifier_ = notifier;
    ProbedVfs::start(notifier, kernel);
    cache_.start(notifier, kernel);
  }
  Status stop() override {
    cache_.stop();
    return ProbedVfs::stop();
  }
  void interrupt(std::uint64_t unique) override { cache_.interrupt(unique); }

  Result<client::EntryReply> lookup(const client::Caller& c, Node parent,
                                    std::string_view name) override {
    client::EntryReply entry = SL_TRY(under_.lookup(c, parent, name));
    if (S_ISREG(entry.attributes.stat.mode))
      entry.node.incarnation = cache_.preferred(key(entry.node));
    const std::lock_guard lock(m_);
    ++lookups_[entry.node.pack()];
    return entry;
  }
  void forget(Node node, std::uint64_t lookups) override {
    under_.forget(node, lookups);
    {
      const std::lock_guard lock(m_);
      if ((lookups_[node.pack()] -= lookups) > 0) return;
      lookups_.erase(node.pack());
    }
    cache_.forget(key(node), node);
  }

  Result<client::OpenReply> open(const client::Caller& c, Node node, std::uint32_t flags) override {
    const bool writer = (flags & O_ACCMODE) != O_RDONLY;
    const auto now = SL_TRY(under_.get_attributes(c, node, std::nullopt));
    client::Incarnations::Open ask;
    ask.file = key(node);
    ask.node = node;
    ask.state = {version.load(), now.stat.length};
    ask.flags = flags;
    ask.unique = c.unique;
    ask.pid = c.pid;
    const auto decision = SL_TRY(cache_.open(ask));
    if (decision.kind == client::OpenDecision::Kind::moved) {
      ++moves;
      return Status(Errc::stale_handle, "look again");
    }
    client::OpenReply reply = SL_TRY(under_.open(c, node, flags));
    if (decision.kind == client::OpenDecision::Kind::passthrough) {
      reply.mode = client::OpenMode::passthrough;
      reply.backing_fd = decision.backing_fd;
      reply.keep_cache = false;
    }
    if (decision.kind == client::OpenDecision::Kind::direct) reply.mode = client::OpenMode::direct;
    const std::lock_guard lock(m_);
    handles_[reply.handle] = {node, writer};
    return reply;
  }
  Result<Created> create(const client::Caller& c, Node parent, std::string_view name,
                         std::uint32_t mode, std::uint32_t flags) override {
    Created created = SL_TRY(under_.create(c, parent, name, mode, flags));
    client::Incarnations::Open ask;
    ask.file = key(created.entry.node);
    ask.node = created.entry.node;
    ask.state = {version.load(), 0};
    ask.flags = flags;
    const client::OpenDecision decision = SL_TRY(cache_.open(ask));
    if (decision.kind == client::OpenDecision::Kind::direct)
      created.open.mode = client::OpenMode::direct;
    const std::lock_guard lock(m_);
    ++lookups_[created.entry.node.pack()];
    handles_[created.open.handle] = {created.entry.node, (flags & O_ACCMODE) != O_RDONLY};
    return created;
  }
  void release(const client::Caller& caller, std::uint64_t handle) override {
    std::pair<Node, bool> open;
    {
      const std::lock_guard lock(m_);
      open = handles_.at(handle);
      handles_.erase(handle);
    }
    cache_.release(key(open.first), open.first, open.second);
    under_.release(caller, handle);
  }
  Result<std::vector<client::Piece>> read(const client::Caller& c, std::uint64_t handle,
                                          std::uint64_t offset, std::uint32_t length) override {
    Node node;
    {
      const std::lock_guard lock(m_);
      node = handles_.at(handle).first;
    }
    const FileState state{version.load(),
                          SL_TRY(under_.get_attributes(c, node, std::nullopt)).stat.length};
    if (auto piece = cache_.peek(key(node), state, offset, length))
      return std::vector<client::Piece>{*piece};
    auto pieces = SL_TRY(under_.read(c, handle, offset, length));
    for (const auto& piece : pieces) read_bytes += piece.bytes.size();
    return pieces;
  }
  Result<std::uint32_t> write(const client::Caller& c, std::uint64_t handle, std::uint64_t offset,
                              ByteSpan bytes, const client::WriteOptions& options) override {
    const std::uint32_t written = SL_TRY(under_.write(c, handle, offset, bytes, options));
    Node node;
    {
      const std::lock_guard lock(m_);
      node = handles_.at(handle).first;
    }
    cache_.local_write(key(node), offset, bytes);
    const std::uint64_t previous = version.fetch_add(1);
    cache_.local_commit(key(node), previous,
                        {previous + 1, std::max<std::uint64_t>(kLength, offset + bytes.size())});
    return written;
  }

  static FileKey key(Node node) { return {kBranch, node.inode}; }
  client::KernelNotifier* notifier() const { return notifier_; }
  std::atomic<std::uint64_t> version{1}, moves{0}, read_bytes{0};

 private:
  client::Incarnations& cache_;
  client::KernelNotifier* notifier_ = nullptr;
  std::mutex m_;
  std::map<std::uint64_t, std::uint64_t> lookups_;
  std::map<std::uint64_t, std::pair<Node, bool>> handles_;
};

std::shared_ptr<Bytes> content(std::uint64_t seed) {
  auto bytes = std::make_shared<Bytes>(kLength);
  Rng rng(seed);
  for (std::size_t i = 0; i + 8 <= bytes->size(); i += 8)
    store_little(bytes->data() + i, rng.next());
  return bytes;
}

/// An open waits for its copy however slow the machine is today.
client::NodeCacheOptions patient() {
  client::NodeCacheOptions options;
  options.wait_limit = options.stall_limit = 60s;
  return options;
}

struct CachedMount {
  explicit CachedMount(client::NodeCacheOptions options = patient(), bool passthrough = true)
      : memory({.valid = 1s, .keep_cache = true}), bytes(content(1)) {
    options.passthrough = passthrough;
    cache = client::make_incarnations(io, options);
    vfs = std::make_unique<CachedVfs>(memory, *cache);
    // Written, not borrowed, so that it can be changed.
    SessionOptions session_options;
    session_options.mountpoint = directory.path();
    session_options.passthrough = passthrough;
    inode = memory.add_file("big", *bytes, bytes);
    io.put({kBranch, inode}, 1, bytes);
    auto started = Session::start(*vfs, session_options);
    EXPECT_TRUE(started.ok()) << started.status().to_string();
    session = std::move(started.value());
  }
  ~CachedMount() { EXPECT_TRUE(session->stop().ok()); }
  std::string path() const { return directory.path() + "/big"; }

  TemporaryDirectory directory;
  MemoryVfs memory;
  std::shared_ptr<Bytes> bytes;
  FakeFileIo io;
  std::unique_ptr<client::Incarnations> cache;
  std::unique_ptr<CachedVfs> vfs;
  std::unique_ptr<Session> session;
  InodeId inode;
};

struct Mapping {
  explicit Mapping(const std::string& path) : file(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    EXPECT_TRUE(file) << std::strerror(errno);
    void* at = ::mmap(nullptr, kLength, PROT_READ, MAP_PRIVATE, file.get(), 0);
    EXPECT_NE(at, MAP_FAILED);
    data = static_cast<const std::byte*>(at);
  }
  ~Mapping() { ::munmap(const_cast<std::byte*>(data), kLength); }
  bool equals(const Bytes& bytes) const { return std::memcmp(data, bytes.data(), kLength) == 0; }
  UniqueFd file;
  const std::byte* data = nullptr;
};

class PassthroughTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_mount()) GTEST_SKIP() << "needs root and /dev/fuse";
  }
  static bool kernel_can(const CachedMount& mount) { return mount.session->features().passthrough; }
};

TEST_F(PassthroughTest, ColdMapIsServedFromTheCopyAndFetchedOnce) {
  CachedMount mount;
  if (!kernel_can(mount)) GTEST_SKIP() << "this kernel has no passthrough";
  Mapping mapping(mount.path());
  EXPECT_TRUE(mapping.equals(*mount.bytes));
  EXPECT_EQ(mount.io.fetched, kLength);
  EXPECT_EQ(mount.vfs->read_bytes, 0U);
  EXPECT_EQ(mount.vfs->moves, 1U);
  EXPECT_EQ(mount.cache->figures().passthrough_opens, 1U);
  EXPECT_TRUE(mount.cache->figures().enabled);
}

TEST_F(PassthroughTest, ASecondProcessFaultsFewHugePages) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's own memory faults as well";
#endif
  CachedMount mount;
  if (!kernel_can(mount)) GTEST_SKIP() << "this kernel has no passthrough";
  { Mapping first(mount.path()); }
  const std::uint64_t requests = mount.session->figures().requests;
  const pid_t child = fork_without_descriptors();
  if (child == 0) {
    const int file = ::open(mount.path().c_str(), O_RDONLY);
    void* at = ::mmap(nullptr, kLength, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    rusage before{}, after{};
    ::getrusage(RUSAGE_SELF, &before);
    volatile char sum = 0;
    for (std::uint64_t i = 0; i < kLength; i += 4096) sum = sum + static_cast<const char*>(at)[i];
    ::getrusage(RUSAGE_SELF, &after);
    const auto faults = static_cast<std::uint64_t>(after.ru_minflt + after.ru_majflt -
                                                   before.ru_minflt - before.ru_majflt);
    ::_exit(faults * 1_GiB / kLength < 1000 ? 0 : 1);
  }
  int result = 0;
  ::waitpid(child, &result, 0);
  EXPECT_EQ(result, 0);
  EXPECT_LT(mount.session->figures().requests - requests, 20U);
}

TEST_F(PassthroughTest, EightProcessesCauseOneFetch) {
  CachedMount mount;
  mount.io.delay_us = 2000;
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    const pid_t child = fork_without_descriptors();
    if (child == 0) {
      // As torch does it: once for the header, once to map.
      const int first = ::open(mount.path().c_str(), O_RDONLY);
      const int second = ::open(mount.path().c_str(), O_RDONLY);
      void* at = ::mmap(nullptr, kLength, PROT_READ, MAP_PRIVATE, second, 0);
      if (first < 0 || second < 0 || at == MAP_FAILED) ::_exit(2);
      ::_exit(std::memcmp(at, mount.bytes->data(), kLength) == 0 ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int result = 0;
    ::waitpid(child, &result, 0);
    EXPECT_EQ(result, 0);
  }
  if (kernel_can(mount)) {
    EXPECT_LE(mount.io.fetched + mount.vfs->read_bytes, kLength * 105 / 100);
  }
}

TEST_F(PassthroughTest, AFirstOpenDoesNotWaitForASlowFillTheSecondDoes) {
  client::NodeCacheOptions options;
  options.expected_bytes_per_second = 1e6;
  options.stall_limit = 20s;
  CachedMount mount(options);
  if (!kernel_can(mount)) GTEST_SKIP() << "this kernel has no passthrough";
  mount.io.blocked = true;
  const UniqueFd first(::open(mount.path().c_str(), O_RDONLY | O_CLOEXEC));
  char byte = 0;
  EXPECT_EQ(::pread(first.get(), &byte, 1, 120'000'000), 1);  // what is not on its way is fetched
  EXPECT_EQ(static_cast<std::byte>(byte), (*mount.bytes)[120'000'000]);
  EXPECT_EQ(mount.cache->figures().passthrough_opens, 0U);
  std::atomic<bool> mapped{false};
  std::thread second([&] {
    Mapping mapping(mount.path());
    EXPECT_TRUE(mapping.equals(*mount.bytes));
    mapped = true;
  });
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(mapped);
  mount.io.blocked = false;
  second.join();
  EXPECT_EQ(mount.cache->figures().passthrough_opens, 1U);
  EXPECT_EQ(::pread(first.get(), &byte, 1, 100'000'000), 1);  // the first goes on as it was
  EXPECT_EQ(static_cast<std::byte>(byte), (*mount.bytes)[100'000'000]);
}

TEST_F(PassthroughTest, AReaderDuringASlowFillTakesWhatTheCopyHas) {
  client::NodeCacheOptions options;
  options.expected_bytes_per_second = 1e6;
  CachedMount mount(options);
  if (!kernel_can(mount)) GTEST_SKIP() << "this kernel has no passthrough";
  mount.io.delay_us = 5000;
  const UniqueFd file(::open(mount.path().c_str(), O_RDONLY | O_CLOEXEC));
  Bytes got(kLength);
  std::uint64_t at = 0;
  for (ssize_t n = 0; (n = ::read(file.get(), got.data() + at,
                                  std::min<std::uint64_t>(1_MiB, kLength - at))) > 0;) {
    at += static_cast<std::uint64_t>(n);
  }
  EXPECT_EQ(at, kLength);
  EXPECT_TRUE(got == *mount.bytes);
  EXPECT_LE(mount.vfs->read_bytes, kLength / 10);
  EXPECT_LE(mount.io.fetched, kLength);
}

TEST_F(PassthroughTest, ASignalEndsTheWaitForAFill) {
  client::NodeCacheOptions options;
  options.stall_limit = 60s;
  CachedMount mount(options);
  if (!kernel_can(mount)) GTEST_SKIP() << "this kernel has no passthrough";
  mount.io.blocked = true;
  const pid_t child = fork_without_descriptors();
  if (child == 0) {
    ::open(mount.path().c_str(), O_RDONLY);
    ::_exit(0);
  }
  EXPECT_TRUE(comes([&] { return mount.session->figures().in_flight > 0; }));
  ::kill(child, SIGTERM);
  int result = 0;
  ::waitpid(child, &result, 0);
  EXPECT_TRUE(WIFSIGNALED(result));
  mount.io.blocked = false;
}

TEST_F(PassthroughTest, ALocalWriteReachesOldMappingsAndANewOpenLeavesTheCopy) {
  CachedMount mount;
  if (!kernel_can(mount)) GTEST_SKIP() << "this kernel has no passthrough";
  const std::string path = mount.directory.path() + "/own";
  write_whole(path, std::string(text_of(*mount.bytes)));
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  mount.io.put({kBranch, InodeId(status.st_ino)}, mount.vfs->version, mount.bytes);
  const Mapping old(path);
  ASSERT_EQ(mount.cache->figures().passthrough_opens, 1U);
  const UniqueFd writer(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(writer) << std::strerror(errno);
  ASSERT_EQ(::pwrite(writer.get(), "xyz", 3, 70'000'000), 3);
  ASSERT_EQ(::pwrite(writer.get(), "tail", 4, kLength), 4);
  EXPECT_EQ(std::memcmp(old.data + 70'000'000, "xyz", 3), 0);
  char tail[8] = {};
  EXPECT_EQ(::pread(old.file.get(), tail, sizeof tail, kLength), 4);  // as tail -f sees it
  EXPECT_STREQ(tail, "tail");
  ASSERT_EQ(::fstat(old.file.get(), &status), 0);
  EXPECT_EQ(status.st_size, static_cast<off_t>(kLength + 4));
  {
    const UniqueFd reader(
        ::open(path.c_str(), O_RDONLY | O_CLOEXEC));  // while it is written: the page cache
    EXPECT_EQ(::pread(reader.get(), tail, 3, 70'000'000), 3);
    EXPECT_EQ(std::memcmp(tail, "xyz", 3), 0);
    EXPECT_EQ(mount.cache->figures().passthrough_opens, 1U);
  }
}

TEST_F(PassthroughTest, OldMappingsKeepTheVersionTheyOpened) {
  CachedMount mount;
  if (!kernel_can(mount)) GTEST_SKIP() << "this kernel has no passthrough";
  Mapping old(mount.path());
  EXPECT_TRUE(old.equals(*mount.bytes));
  const auto changed = content(2);
  mount.io.put({kBranch, mount.inode}, 2, changed);
  mount.vfs->version = 2;
  mount.cache->remote_change({kBranch, mount.inode});
  Mapping renewed(mount.path());
  EXPECT_TRUE(renewed.equals(*changed));
  EXPECT_TRUE(old.equals(*mount.bytes));
  EXPECT_EQ(mount.cache->figures().passthrough_opens, 2U);
}

TEST_F(PassthroughTest, WithoutPassthroughPagesArePushedAhead) {
  CachedMount mount({}, false);
  EXPECT_FALSE(mount.cache->figures().enabled);
  EXPECT_EQ(mount.cache->figures().reason, "switched off");
  Mapping mapping(mount.path());
  EXPECT_TRUE(comes([&] { return mount.io.fetched >= kLength; }));
  EXPECT_TRUE(mapping.equals(*mount.bytes));
  EXPECT_EQ(mount.vfs->moves, 0U);
  EXPECT_EQ(mount.session->figures().stored_bytes, kLength);
  EXPECT_LT(mount.vfs->read_bytes, kLength / 4);
  // Opened again, the pages are there.
  const std::uint64_t before = mount.io.fetched;
  Mapping again(mount.path());
  EXPECT_TRUE(again.equals(*mount.bytes));
  EXPECT_EQ(mount.io.fetched, before);
}

}  // namespace
}  // namespace starlane::fuse
