// Calls from stub to service over real connections, and what happens when they break.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "common/rng.h"
#include "net/loop/loop_transport.h"
#include "net/shm/shm_fabric.h"
#include "net/tcp/tcp_transport.h"
#ifdef SL_HAVE_UCX
#include "net/ucx/ucx_fabric.h"
#endif
#include "net/test_links.h"
#include "rpc/fake_services.h"
#include "rpc/frame_io.h"

namespace starlane::rpc {
namespace {

using std::chrono::seconds;

std::vector<std::byte> noise(std::size_t size, std::uint64_t seed) {
  std::vector<std::byte> bytes(size);
  Rng rng(seed);
  for (std::size_t i = 0; i + 8 <= size; i += 8) store_little(bytes.data() + i, rng.next());
  return bytes;
}

Call call_within(Nanoseconds time) {
  Call call;
  call.deadline = Deadline::after(time);
  return call;
}

/// Breaks its connections on demand, from any thread.
class CuttableTransport final : public net::Transport {
 public:
  bool serves(const net::Endpoint& endpoint) const override { return tcp_.serves(endpoint); }
  Result<std::unique_ptr<net::Connection>> connect(const net::Endpoint& endpoint,
                                                   Deadline deadline) override {
    auto connection = tcp_.connect(endpoint, deadline);
    MutexLock lock(m_);
    if (connection.ok()) sockets_.emplace_back(::dup((*connection)->descriptor()));
    return connection;
  }
  Result<std::unique_ptr<net::Listener>> listen(const net::Endpoint& endpoint) override {
    return tcp_.listen(endpoint);
  }
  void cut() {
    MutexLock lock(m_);
    for (const UniqueFd& socket : sockets_) ::shutdown(socket.get(), SHUT_RDWR);
    sockets_.clear();
  }

 private:
  net::TcpTransport tcp_;
  Mutex m_;
  std::vector<UniqueFd> sockets_ SL_GUARDED_BY(m_);
};

/// Exposed memory of one kind for the client's or the server's part of this process; null for ways
/// that have none.
net::MemoryFabric* fabric_of(const std::string& way, [[maybe_unused]] bool server) {
  static const auto shared = net::make_shm_fabric();
  if (way == "shm") return shared.get();
  if (way != "ucx") return nullptr;
#ifdef SL_HAVE_UCX
  static const std::unique_ptr<net::MemoryFabric> fabrics[] = {
      std::move(net::make_ucx_fabric()).value(), std::move(net::make_ucx_fabric()).value()};
  return fabrics[server ? 1 : 0].get();
#else
  return nullptr;
#endif
}

std::vector<std::string> ways() {
  std::vector<std::string> all{"unix", "tcp", "loop", "shm"};
#ifdef SL_HAVE_UCX
  all.push_back("ucx");
#endif
  return all;
}

/// Where to listen; which kind is the test's parameter.
class RpcTest : public testing::TestWithParam<std::string> {
 protected:
  RpcTest()
      : meta_([this](std::uint16_t method, const Call& call, const auto& request, auto* reply) {
          calls_.fetch_add(1);
          return serve_ ? serve_(method, call, request, reply) : Status();
        }) {
    set_endpoint();
  }
  void set_endpoint() {
    if (GetParam() == "loop") {
      endpoint_ = {net::Endpoint::Kind::loop, "server", 0};
    } else if (GetParam() != "tcp") {
      endpoint_ = {net::Endpoint::Kind::unix_socket, directory_.file("socket"), 0};
    } else {
      endpoint_ = {net::Endpoint::Kind::tcp, "127.0.0.1", 0};
    }
  }
  void start(ServerOptions options = {}, Services services = {}) {
    if (options.workers == ServerOptions().workers) options.workers = 4;
    if (options.fabric == nullptr) options.fabric = fabric_of(GetParam(), true);
    if (services.meta == nullptr && services.block == nullptr) services = {&meta_, &blocks_};
    server_ = std::make_unique<Server>(options, services, key_, transports_);
    ASSERT_TRUE(server_->start().ok());
    const auto local = server_->listen(endpoint_);
    ASSERT_TRUE(local.ok()) << local.status().to_string();
    endpoint_ = *local;
  }
  std::unique_ptr<Channel> channel(net::Purpose purpose, ChannelOptions options = {}) {
    options.purpose = purpose;
    options.mount_nonce = 77;
    options.fabric = fabric_of(GetParam(), false);
    return std::make_unique<Channel>(endpoint_, key_, transports_, options);
  }

  net::TestDirectory directory_;
  net::Key key_ = net::random_key();
  net::TcpTransport tcp_;
  net::LoopTransport loop_;
  std::vector<net::Transport*> transports_{&tcp_, &loop_};
  net::Endpoint endpoint_;
  FakeMeta::Serve serve_;
  std::atomic<int> calls_{0};  // statistics
  FakeMeta meta_;
  MemoryBlocks blocks_{100'000};
  std::unique_ptr<Server> server_;
};
INSTANTIATE_TEST_SUITE_P(Over, RpcTest, testing::ValuesIn(ways()),
                         [](const auto& one) { return one.param; });

TEST_P(RpcTest, AMetadataCallArrivesWholeAndItsAnswerToo) {
  serve_ = [](std::uint16_t method, const Call& call, const google::protobuf::Message& request,
              google::protobuf::Message* reply) {
    EXPECT_EQ(method, 20);
    EXPECT_EQ(call.session, SessionId(5));
    EXPECT_EQ(call.trace, 6u);
    EXPECT_LT(call.deadline.left(), seconds(31));
    EXPECT_EQ(dynamic_cast<const pb::LookupRequest&>(request).name(), "file");
    dynamic_cast<pb::NewEntry&>(*reply).mutable_attributes()->set_inode(99);
    return Status();
  };
  start();
  const auto way = channel(net::Purpose::meta);
  MetaStub stub(*way);
  Call call = call_within(seconds(30));
  call.session = SessionId(5);
  call.trace = 6;
  pb::LookupRequest request;
  request.set_name("file");
  pb::NewEntry reply;
  const Status status = stub.lookup(call, request, &reply);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(reply.attributes().inode(), 99u);
}

TEST_P(RpcTest, EveryMethodReachesItsOwn) {
  std::uint16_t served = 0;
  serve_ = [&](std::uint16_t method, const Call&, const auto&, auto*) {
    served = method;
    return Status();
  };
  start();
  const auto way = channel(net::Purpose::meta);
  MetaStub stub(*way);
#define SL_TEST(number, method, Request, Reply)                                                \
  {                                                                                            \
    pb::Reply reply;                                                                           \
    EXPECT_TRUE(stub.method(call_within(seconds(20)), pb::Request(), &reply).ok()) << #method; \
    EXPECT_EQ(served, number) << #method;                                                      \
  }
  SL_META_METHODS(SL_TEST)
#undef SL_TEST
  EXPECT_EQ(way->counts().connects, 1u);
}

TEST_P(RpcTest, CallsThatSleepHoldNoWorker) {
  std::mutex m;
  std::condition_variable changed;
  int asleep = 0;
  bool awake = false;
  serve_ = [&](std::uint16_t method, const Call&, const auto&, auto*) {
    if (method != 53) return Status();
    std::unique_lock lock(m);
    ++asleep;
    changed.notify_all();
    changed.wait(lock, [&] { return awake; });
    return Status();
  };
  ServerOptions options;
  options.wait_limit = 8;  // twice the workers
  start(options);
  const auto way = channel(net::Purpose::meta);
  const auto waits = channel(net::Purpose::wait);
  MetaStub stub(*way, waits.get());
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 8; ++i) {
    sleepers.emplace_back([&] {
      pb::Empty reply;
      EXPECT_TRUE(stub.await_locks(call_within(seconds(30)), {}, &reply).ok());
    });
  }
  {
    std::unique_lock lock(m);
    changed.wait(lock, [&] { return asleep == 8; });
  }
  pb::ClusterMap map;
  EXPECT_TRUE(stub.cluster_map(call_within(seconds(20)), {}, &map).ok());
  // One more than may sleep is turned away.
  const auto more = channel(net::Purpose::wait);
  MetaStub ninth(*way, more.get());
  pb::Empty reply;
  EXPECT_EQ(ninth.await_locks(call_within(seconds(20)), {}, &reply).code(), Errc::unavailable);
  {
    const std::lock_guard lock(m);
    awake = true;
    changed.notify_all();
  }
  for (std::thread& sleeper : sleepers) sleeper.join();
}

TEST_P(RpcTest, ErrorsOfTheServiceComeBackWithTheirText) {
  serve_ = [](auto, const Call&, const auto&, auto*) {
    return Status(Errc::not_empty, "directory x has entries");
  };
  start();
  const auto way = channel(net::Purpose::meta);
  MetaStub stub(*way);
  pb::UnlinkReply reply;
  EXPECT_EQ(stub.remove_directory(call_within(seconds(20)), {}, &reply).to_string(),
            "not_empty: directory x has entries");
  serve_ = [](auto, const Call&, const auto&, auto*) {
    return Status(Errc::io, std::string(100'000, 'x'));
  };
  EXPECT_EQ(stub.remove_directory(call_within(seconds(20)), {}, &reply).text().size(),
            kErrorTextLimit);
}

TEST_P(RpcTest, TooLargeMessagesAreErrorsOfTheCallOnly) {
  serve_ = [](auto, const Call&, const auto&, auto* reply) {
    if (auto* xattr = dynamic_cast<pb::XattrReply*>(reply))
      xattr->set_value(std::string(kMetaReplyLimit, 'v'));
    return Status();
  };
  start();
  const auto way = channel(net::Purpose::meta);
  MetaStub stub(*way);
  pb::XattrReply reply;
  EXPECT_EQ(stub.get_xattr(call_within(seconds(20)), {}, &reply).code(), Errc::io);
  pb::XattrRequest large;
  large.set_value(std::string(kMetaRequestLimit, 'v'));
  pb::Empty empty;
  EXPECT_EQ(stub.set_xattr(call_within(seconds(20)), large, &empty).code(), Errc::too_big);
  large.set_value(std::string(kMetaRequestLimit - 100, 'v'));
  EXPECT_TRUE(stub.set_xattr(call_within(seconds(20)), large, &empty).ok());
  EXPECT_EQ(way->counts().connects, 1u);
}

TEST_P(RpcTest, BlocksOfEverySizeGoThereAndBack) {
  start();
  const auto way = channel(net::Purpose::data);
  BlockStub stub(*way);
  const Call call = call_within(seconds(60));
  std::uint32_t index = 0;
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{4096}, std::size_t{16384}, std::size_t{16385},
        std::size_t{65537}, std::size_t{1'000'003}, std::size_t{kBlockSize}}) {
    const BlockId id{BranchId(1), SliceId(size), index++};
    const auto bytes = noise(size, size);
    MemorySource source(bytes);
    const Status put = stub.put(call, put_of(id, bytes), source);
    ASSERT_TRUE(put.ok()) << size << put.to_string();
    std::vector<std::byte> got(size);
    LandingSink sink(got);
    const auto reply = stub.get(call, {TargetId(1), id, 0, static_cast<std::uint32_t>(size)}, sink);
    ASSERT_TRUE(reply.ok()) << size << reply.status().to_string();
    EXPECT_EQ(reply->checksums, (std::vector<std::uint32_t>{1, 2, 3}));
    EXPECT_EQ(sink.written(), size);
    EXPECT_TRUE(got == bytes) << size;
    std::vector<std::byte> middle(size / 2);
    LandingSink part(middle);
    ASSERT_TRUE(stub.get(call,
                         {TargetId(1), id, static_cast<std::uint32_t>(size / 3),
                          static_cast<std::uint32_t>(middle.size())},
                         part)
                    .ok());
    EXPECT_TRUE(std::equal(middle.begin(), middle.end(),
                           bytes.begin() + static_cast<std::ptrdiff_t>(size / 3)));
  }
  EXPECT_EQ(way->counts().connects, 1u);
  EXPECT_EQ(way->counts().attached, fabric_of(GetParam(), false) != nullptr ? 1u : 0u);
}

/// A source and a sink that lie in no one piece of memory.
class Trickle final : public BulkSource {
 public:
  explicit Trickle(ByteSpan bytes) : inner_(bytes) {}
  std::uint64_t size() const override {
    return const_cast<Trickle*>(this)->inner_.memory()->size();
  }
  Status read(MutableByteSpan out) override { return inner_.read(out); }

 private:
  MemorySource inner_;
};
class Growing final : public BulkSink {
 public:
  Status write(ByteSpan bytes) override {
    got.insert(got.end(), bytes.begin(), bytes.end());
    return {};
  }
  std::vector<std::byte> got;
};

TEST_P(RpcTest, BulkWithoutMemoryTravelsToo) {
  start();
  const auto way = channel(net::Purpose::data);
  BlockStub stub(*way);
  const BlockId id{BranchId(1), SliceId(2), 3};
  const auto bytes = noise(kBlockSize - 8, 1);
  Trickle source(bytes);
  ASSERT_TRUE(stub.put(call_within(seconds(60)), put_of(id, bytes), source).ok());
  Growing sink;
  ASSERT_TRUE(stub.get(call_within(seconds(60)),
                       {TargetId(1), id, 0, static_cast<std::uint32_t>(bytes.size())}, sink)
                  .ok());
  EXPECT_TRUE(sink.got == bytes);
}

/// Memory that no server can reach.
class Unreachable final : public net::MemoryFabric {
 public:
  Result<std::unique_ptr<net::ExposedMemory>> expose(std::uint64_t bytes) override {
    return std::unique_ptr<net::ExposedMemory>(std::make_unique<Region>(bytes));
  }
  Result<std::unique_ptr<net::ReachedMemory>> reach(ByteSpan, UniqueFd) override {
    if (wrong_region) return std::unique_ptr<net::ReachedMemory>(std::make_unique<Elsewhere>());
    return Status(Errc::unavailable, "no way");
  }
  bool wrong_region = false;

 private:
  class Region final : public net::ExposedMemory {
   public:
    explicit Region(std::uint64_t bytes) : bytes_(bytes) {}
    MutableByteSpan region() override { return bytes_; }
    const std::string& offer() const override { return offer_; }
    void progress() override {}

   private:
    std::vector<std::byte> bytes_;
    const std::string offer_ = "offer";
  };
  class Elsewhere final : public net::ReachedMemory {
   public:
    std::uint64_t size() const override { return kBlockSize; }
    Status move_out(std::uint64_t, MutableByteSpan) override { return {}; }
    Status move_in(std::uint64_t, ByteSpan) override {
      ADD_FAILURE() << "wrote into what it did not recognise";
      return {};
    }
  };
};

TEST_P(RpcTest, BulkStaysOnTheStreamWhereMemoryCannotBeReached) {
  Unreachable fabric;
  for (const bool wrong_region : {false, true}) {
    fabric.wrong_region = wrong_region;
    ServerOptions server_options;
    server_options.fabric = &fabric;
    server_.reset();
    set_endpoint();
    start(server_options);
    ChannelOptions options;
    options.purpose = net::Purpose::data;
    options.fabric = &fabric;
    Channel way(endpoint_, key_, transports_, options);
    BlockStub stub(way);
    const auto bytes = noise(1 << 20, 5);
    const BlockId id{BranchId(1), SliceId(6), wrong_region};
    MemorySource source(bytes);
    ASSERT_TRUE(stub.put(call_within(seconds(20)), put_of(id, bytes), source).ok());
    std::vector<std::byte> got(bytes.size());
    LandingSink sink(got);
    ASSERT_TRUE(stub.get(call_within(seconds(20)), {TargetId(1), id, 0, 1 << 20}, sink).ok());
    EXPECT_TRUE(got == bytes);
    EXPECT_EQ(way.counts().attached, 0u);
  }
}

TEST_P(RpcTest, AnExposureThatWasNeverAttachedEndsTheConnection) {
  start();
  net::Transport* transport = net::transport_for(transports_, endpoint_).value();
  auto connection = std::move(transport->connect(endpoint_, net::soon())).value();
  ASSERT_TRUE(net::greet(*connection, key_, {net::Purpose::data, 0, 1}, net::soon()).ok());
  FrameHeader header;
  header.kind = FrameKind::block_request;
  header.method = 2;
  const WireExposure exposure{0, 4096};
  const ByteSpan place = std::as_bytes(std::span(&exposure, 1));
  seal(header, place, {});
  const ByteSpan pieces[] = {image_of(header), place};
  ASSERT_TRUE(connection->send(pieces, net::soon()).ok());
  const auto reply = receive_header(*connection, net::soon());
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->status, static_cast<std::uint16_t>(Errc::protocol));
}

TEST_P(RpcTest, TheOtherBlockCallsTravel) {
  start();
  const auto way = channel(net::Purpose::data);
  BlockStub stub(*way);
  const Call call = call_within(seconds(20));
  EXPECT_TRUE(stub.sync(call, TargetId(1)).ok());
  EXPECT_EQ(stub.sync(call, TargetId(2)).to_string(), "not_found: no target 2");
  EXPECT_TRUE(stub.remove_slice(call, TargetId(1), BranchId(3), SliceId(4)).ok());
  const auto bytes = noise(8, 1);
  MemorySource source(bytes);
  ASSERT_TRUE(stub.put(call, put_of({BranchId(1), SliceId(2), 3}, bytes), source).ok());
  const auto listing = stub.list(call, TargetId(1), "c", 10);
  ASSERT_TRUE(listing.ok());
  EXPECT_EQ(listing->blocks.at(0).length, 8u);
  EXPECT_EQ(listing->cursor, "c+");
  EXPECT_TRUE(stub.verify(call, TargetId(1), "", 10).ok());
  const auto targets = stub.targets(call);
  ASSERT_TRUE(targets.ok());
  EXPECT_EQ(targets->at(1).directory, "/data/one");
  EXPECT_EQ(targets->at(1).stored_bytes, 300u);
  EXPECT_FALSE(targets->at(0).healthy);
}

TEST_P(RpcTest, ErrorsInTheMiddleOfBulkLeaveTheConnectionUsable) {
  start();
  const auto way = channel(net::Purpose::data);
  BlockStub stub(*way);
  const Call call = call_within(seconds(20));
  const BlockId id{BranchId(1), SliceId(2), 3};
  const auto bytes = noise(1 << 20, 1);
  PutBlock wrong = put_of(id, bytes);
  wrong.unit_checksums[0] ^= 1;
  MemorySource source(bytes);
  EXPECT_EQ(stub.put(call, wrong, source).code(), Errc::corrupt);
  wrong.unit_checksums.pop_back();
  EXPECT_EQ(stub.put(call, wrong, source).code(), Errc::invalid);
  std::vector<std::byte> got(100);
  LandingSink sink(got);
  EXPECT_EQ(stub.get(call, {TargetId(1), id, 0, 100}, sink).code(), Errc::not_found);
  EXPECT_EQ(sink.written(), 0u);
  EXPECT_TRUE(stub.sync(call, TargetId(1)).ok());
  EXPECT_EQ(way->counts().connects, 1u);
}

/// Refuses every put unread, and fails gets after half of their bytes.
class Refusing final : public BlockService {
 public:
  Status put(const Call&, const PutBlock&, BulkSource&) override {
    return Status(Errc::no_space, "full");
  }
  Result<GetBlockReply> get(const Call&, const GetBlock& request, BulkSink& out) override {
    const std::vector<std::byte> half(request.length / 2);
    if (const Status status = out.write(half); !status.ok()) return status;
    if (request.offset != 0) return GetBlockReply{};  // a store that believes it is done
    return Status(Errc::corrupt, "half of it is bad");
  }
  Status sync(const Call&, TargetId) override { return {}; }
  Status remove_slice(const Call&, TargetId, BranchId, SliceId) override { return {}; }
  Result<BlockListing> list(const Call&, TargetId, const std::string&, std::uint32_t) override {
    return BlockListing{};
  }
  Result<BlockListing> verify(const Call&, TargetId, const std::string&, std::uint32_t) override {
    return BlockListing{};
  }
  Result<std::vector<TargetInfo>> targets(const Call&) override {
    return std::vector<TargetInfo>{};
  }
};

TEST_P(RpcTest, UnreadBulkIsDrainedAndHalfAnAnswerIsAnError) {
  Refusing refusing;
  start({}, {nullptr, &refusing});
  const auto way = channel(net::Purpose::data);
  BlockStub stub(*way);
  const Call call = call_within(seconds(20));
  const auto bytes = noise(kBlockSize, 1);
  for (int i = 0; i < 5; ++i) {
    MemorySource source(bytes);
    EXPECT_EQ(stub.put(call, put_of({BranchId(1), SliceId(2), 3}, bytes), source).code(),
              Errc::no_space);
    std::vector<std::byte> got(1 << 20);
    LandingSink sink(got);
    EXPECT_EQ(stub.get(call, {TargetId(1), {}, 0, 1 << 20}, sink).status().to_string(),
              "corrupt: half of it is bad");
    EXPECT_EQ(stub.get(call, {TargetId(1), {}, 8, 1 << 20}, sink).code(), Errc::io);
    EXPECT_EQ(sink.written(), 0u);
  }
  EXPECT_EQ(way->counts().connects, 1u);
  server_->stop();
}

TEST_P(RpcTest, ManyThreadsShareFewConnections) {
  start();
  ChannelOptions options;
  options.connections = 3;
  const auto way = channel(net::Purpose::data, options);
  BlockStub stub(*way);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (std::uint64_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint32_t i = 0; i < 20; ++i) {
        const auto bytes = noise(8 + 50'000 * (i % 3), t * 100 + i);
        const BlockId id{BranchId(t), SliceId(1), i};
        MemorySource source(bytes);
        if (!stub.put(call_within(seconds(60)), put_of(id, bytes), source).ok()) ++wrong;
        std::vector<std::byte> got(bytes.size());
        LandingSink sink(got);
        const GetBlock get{TargetId(1), id, 0, static_cast<std::uint32_t>(got.size())};
        if (!stub.get(call_within(seconds(60)), get, sink).ok() || got != bytes) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(way->counts().connects, 3u);
  EXPECT_LE(way->counts().open, 3u);
}

TEST_P(RpcTest, ADeadlineEndsACallAndItsConnection) {
  // The server may still be in the first call when the test is over.
  const auto released = std::make_shared<std::atomic<bool>>(false);
  std::atomic<bool>& release = *released;
  serve_ = [released](auto, const Call&, const auto&, auto*) {
    while (!*released) std::this_thread::sleep_for(Milliseconds(1));
    return Status();
  };
  start();
  const auto way = channel(net::Purpose::meta);
  MetaStub stub(*way);
  pb::NewEntry reply;
  EXPECT_EQ(stub.lookup(call_within(Milliseconds(50)), {}, &reply).code(), Errc::timeout);
  EXPECT_EQ(way->counts().open, 0u);
  release = true;
  EXPECT_TRUE(stub.lookup(call_within(seconds(20)), {}, &reply).ok());
}

TEST_P(RpcTest, WaitingForAConnectionEndsAtTheDeadline) {
  // The server may still be in the first call when the test is over.
  const auto released = std::make_shared<std::atomic<bool>>(false);
  std::atomic<bool>& release = *released;
  serve_ = [released](auto, const Call&, const auto&, auto*) {
    while (!*released) std::this_thread::sleep_for(Milliseconds(1));
    return Status();
  };
  start();
  ChannelOptions options;
  options.connections = 1;
  const auto way = channel(net::Purpose::meta, options);
  MetaStub stub(*way);
  std::thread first([&] {
    pb::NewEntry reply;
    EXPECT_TRUE(stub.lookup(call_within(seconds(20)), {}, &reply).ok());
  });
  while (calls_ == 0) std::this_thread::yield();
  pb::NewEntry reply;
  EXPECT_EQ(stub.lookup(call_within(Milliseconds(30)), {}, &reply).code(), Errc::timeout);
  release = true;
  first.join();
}

TEST_P(RpcTest, NobodyListening) {
  endpoint_ =
      GetParam() != "tcp" ? endpoint_ : net::Endpoint{net::Endpoint::Kind::tcp, "127.0.0.1", 1};
  const auto way = channel(net::Purpose::meta);
  MetaStub stub(*way);
  pb::NewEntry reply;
  const Status status = stub.lookup(call_within(seconds(20)), {}, &reply);
  EXPECT_EQ(status.code(), Errc::unavailable);
  EXPECT_NE(status.text().find(endpoint_.to_string()), std::string::npos);
  EXPECT_GE(way->counts().failed_connects, 1u);
  EXPECT_LE(way->counts().failed_connects, 3u);
}

TEST_P(RpcTest, ARestartedServerIsFoundAgainUnnoticed) {
  start();
  const auto way = channel(net::Purpose::meta);
  MetaStub stub(*way);
  pb::Attributes reply;
  pb::SetAttributesRequest request;  // not repeatable: only what was surely not sent is repeated
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(stub.set_attributes(call_within(seconds(20)), request, &reply).ok());
    server_.reset();
    start();
  }
  EXPECT_TRUE(stub.set_attributes(call_within(seconds(20)), request, &reply).ok());
  EXPECT_EQ(calls_, 6);
}

TEST_P(RpcTest, OnlyRepeatableCallsAreRepeatedWhenTheConnectionBreaks) {
  // The service runs, then the connection breaks before the answer leaves.
  if (GetParam() == "loop") return;  // LoopFaultsTest does this, by seed
  CuttableTransport cuttable;
  std::atomic<int> kills{1};
  serve_ = [&](auto, const Call&, const auto&, auto*) {
    if (kills.fetch_sub(1) > 0) cuttable.cut();
    return Status();
  };
  start();
  transports_ = {&cuttable};
  const auto way = channel(net::Purpose::meta);
  MetaStub stub(*way);
  pb::NewEntry entry;
  EXPECT_TRUE(stub.lookup(call_within(seconds(20)), {}, &entry).ok());
  EXPECT_EQ(calls_, 2);
  EXPECT_EQ(way->counts().repeats, 1u);
  kills = 1;
  EXPECT_EQ(stub.create(call_within(seconds(20)), {}, &entry).code(), Errc::unavailable);
  EXPECT_EQ(calls_, 3);
  kills = 1;
  pb::CreateRequest numbered;
  numbered.mutable_on()->set_request(8);
  EXPECT_TRUE(stub.create(call_within(seconds(20)), numbered, &entry).ok());
  EXPECT_EQ(calls_, 5);
}

TEST_P(RpcTest, AnotherKeyIsRefused) {
  start();
  const net::Key other = net::random_key();
  Channel way(endpoint_, other, transports_, {});
  MetaStub stub(way);
  pb::NewEntry reply;
  EXPECT_EQ(stub.lookup(call_within(seconds(20)), {}, &reply).code(), Errc::unauthenticated);
  EXPECT_EQ(calls_, 0);
}

TEST_P(RpcTest, MetadataAndDataDoNotMix) {
  start();
  const auto way = channel(net::Purpose::data);
  MetaStub stub(*way);
  pb::NewEntry reply;
  EXPECT_EQ(stub.lookup(call_within(seconds(20)), {}, &reply).code(), Errc::protocol);
  EXPECT_EQ(calls_, 0);
}

TEST_P(RpcTest, WhatIsNotServedIsSaid) {
  start({}, {nullptr, &blocks_});
  const auto way = channel(net::Purpose::meta);
  MetaStub stub(*way);
  pb::NewEntry reply;
  EXPECT_EQ(stub.lookup(call_within(seconds(20)), {}, &reply).code(), Errc::unsupported);
}

TEST_P(RpcTest, UnknownMethodsAreAnErrorOfTheCall) {
  start();
  for (const auto purpose : {net::Purpose::meta, net::Purpose::data}) {
    const auto way = channel(purpose);
    Request request;
    request.kind =
        purpose == net::Purpose::meta ? FrameKind::meta_request : FrameKind::block_request;
    request.method = 9999;
    for (int i = 0; i < 2; ++i) {
      const auto answer = way->call(call_within(seconds(20)), request);
      ASSERT_TRUE(answer.ok());
      EXPECT_EQ(answer->status().code(), Errc::not_implemented);
    }
    EXPECT_EQ(way->counts().connects, 1u);
  }
}

TEST_P(RpcTest, AnUndecodableRequestEndsTheConnection) {
  start();
  const auto way = channel(net::Purpose::meta);
  Request request;
  request.method = 20;
  request.payload = bytes_of("\xff\xff\xff\xff\xff");
  {
    const auto answer = way->call(call_within(seconds(20)), request);
    ASSERT_TRUE(answer.ok());
    EXPECT_EQ(answer->status().code(), Errc::protocol);
  }
  request.payload = {};
  EXPECT_TRUE(way->call(call_within(seconds(20)), request)->status().ok());
  EXPECT_EQ(way->counts().connects, 2u);
}

TEST_P(RpcTest, AFullServerSaysBusy) {
  ServerOptions options;
  options.connection_limit = 2;
  start(options);
  std::vector<std::unique_ptr<Channel>> ways;
  pb::NewEntry reply;
  for (int i = 0; i < 2; ++i) {
    ways.push_back(channel(net::Purpose::meta));
    ASSERT_TRUE(MetaStub(*ways.back()).lookup(call_within(seconds(20)), {}, &reply).ok());
  }
  ways.push_back(channel(net::Purpose::meta));
  EXPECT_EQ(MetaStub(*ways.back()).lookup(call_within(seconds(20)), {}, &reply).code(), Errc::busy);
  ways.erase(ways.begin());
  Status status(Errc::busy, "");
  for (int i = 0; i < 1000 && !status.ok();
       ++i) {  // the server notices the end of the first a little later
    std::this_thread::sleep_for(Milliseconds(5));
    status = MetaStub(*ways.back()).lookup(call_within(seconds(20)), {}, &reply);
  }
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST_P(RpcTest, StoppingLetsCallsInProgressEnd) {
  std::atomic<bool> begun{false}, release{false};
  serve_ = [&](auto, const Call&, const auto&, auto*) {
    begun = true;
    while (!release) std::this_thread::sleep_for(Milliseconds(1));
    return Status();
  };
  start();
  const auto way = channel(net::Purpose::meta);
  MetaStub stub(*way);
  std::thread caller([&] {
    pb::NewEntry reply;
    EXPECT_TRUE(stub.create(call_within(seconds(20)), {}, &reply).ok());
  });
  while (!begun) std::this_thread::yield();
  std::thread stopper([&] { server_->stop(); });
  std::this_thread::sleep_for(Milliseconds(20));
  release = true;
  stopper.join();
  caller.join();
  EXPECT_EQ(server_->counts().connections, 0u);
}

TEST_P(RpcTest, WhatWaitsForAWorkerIsSeen) {
  std::atomic<bool> begun{false}, release{false};
  serve_ = [&](auto, const Call&, const auto&, auto*) {
    begun = true;
    while (!release) std::this_thread::sleep_for(Milliseconds(1));
    return Status();
  };
  ServerOptions options;
  options.workers = 1;
  start(options);
  const auto way = channel(net::Purpose::meta);
  std::vector<std::thread> callers;
  const auto call = [&] {
    pb::NewEntry reply;
    EXPECT_TRUE(MetaStub(*way).create(call_within(seconds(20)), {}, &reply).ok());
  };
  callers.emplace_back(call);
  while (!begun) std::this_thread::yield();
  EXPECT_EQ(server_->load().queued, 0u);
  for (int i = 0; i < 3; ++i) callers.emplace_back(call);
  Server::Load load;
  for (int i = 0; i < 2000 && load.queued != 3; ++i) {  // they are on their way
    std::this_thread::sleep_for(Milliseconds(5));
    load = server_->load();
  }
  EXPECT_EQ(load.queued, 3u);
  EXPECT_EQ(load.serving, 1u);
  EXPECT_EQ(load.workers, 1u);
  release = true;
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(server_->load().queued, 0u);
  // Those that waited did so outside the server's own time.
  EXPECT_EQ(way->way().count(), 4u);
}

TEST_P(RpcTest, ConnectionsUnusedForLongAreClosed) {
  start();
  ChannelOptions options;
  options.idle_timeout = Milliseconds(0);
  const auto way = channel(net::Purpose::meta, options);
  MetaStub stub(*way);
  pb::NewEntry reply;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(stub.lookup(call_within(seconds(20)), {}, &reply).ok());
  EXPECT_EQ(way->counts().open, 0u);
  EXPECT_EQ(way->counts().connects, 3u);
}

}  // namespace
}  // namespace starlane::rpc
