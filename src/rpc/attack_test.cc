// A live server among peers that are broken, slow or hostile: whatever they send, it must neither
// stop nor stop serving others. What its decoders refuse is fuzz_test's.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "common/rng.h"
#include "net/handshake.h"
#include "net/tcp/tcp_transport.h"
#include "net/test_links.h"
#include "proto/block_wire.h"
#include "rpc/fake_services.h"
#include "rpc/frame_io.h"

namespace starlane::rpc {
namespace {

using std::chrono::seconds;

class AttackTest : public testing::TestWithParam<std::string> {
 protected:
  AttackTest()
      : seed_(random_seed()),
        rng_(seed_),
        meta_([](auto, const Call&, const auto&, auto*) { return Status(); }),
        server_(options(), {&meta_, &blocks_}, key_, transports_) {
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed_));
    EXPECT_TRUE(server_.start().ok());
    const bool unix_socket = GetParam() == "unix";
    const auto where = server_.listen(
        unix_socket ? net::Endpoint{net::Endpoint::Kind::unix_socket, directory_.file("s"), 0}
                    : net::Endpoint{net::Endpoint::Kind::tcp, "127.0.0.1", 0});
    EXPECT_TRUE(where.ok());
    endpoint_ = *where;
  }
  static ServerOptions options() {
    ServerOptions options;
    options.workers = 2;
    options.handshake_limit = 8;
    options.handshake_timeout = Milliseconds(300);
    options.peer.frame_timeout = Milliseconds(300);
    options.peer.bulk_timeout = Milliseconds(300);
    options.drain_timeout = Milliseconds(1000);
    return options;
  }
  std::unique_ptr<net::Connection> connect() {
    auto connection = tcp_.connect(endpoint_, net::soon());
    EXPECT_TRUE(connection.ok()) << connection.status().to_string();
    return std::move(connection).value();
  }
  std::unique_ptr<net::Connection> greeted(net::Purpose purpose) {
    auto connection = connect();
    const auto agreed = net::greet(*connection, key_, {purpose, 0, 1}, net::soon());
    EXPECT_TRUE(agreed.ok()) << agreed.status().to_string();
    return connection;
  }
  static void send(net::Connection& to, ByteSpan bytes) {
    (void)to.send(std::span(&bytes, 1), net::soon());
  }
  std::string random_bytes(std::size_t size) {
    std::string bytes(size, 0);
    for (char& c : bytes) c = static_cast<char>(rng_.next());
    return bytes;
  }
  /// A frame that a client would send.
  std::string valid_frame(net::Purpose purpose) {
    FrameHeader header;
    header.kind =
        purpose == net::Purpose::meta ? FrameKind::meta_request : FrameKind::block_request;
    header.method =
        static_cast<std::uint16_t>(1 + rng_.below(purpose == net::Purpose::meta ? 70 : 8));
    header.sequence = rng_.next();
    header.bulk_length = purpose == net::Purpose::data && rng_.one_in(2) ? rng_.below(100'000) : 0;
    const std::string payload = random_bytes(rng_.below(100));
    seal(header, {}, bytes_of(payload));
    return std::string(text_of(image_of(header))) + payload + random_bytes(header.bulk_length);
  }
  /// Another client, whose call must succeed.
  void expect_served() {
    Channel way(endpoint_, key_, transports_, {});
    Call call;
    call.deadline = Deadline::after(seconds(20));
    pb::NewEntry reply;
    const Status status = MetaStub(way).lookup(call, {}, &reply);
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  /// The server ends the connection by itself.
  static void expect_ended(net::Connection& connection) {
    std::byte one;
    Status status;
    while (status.ok()) status = connection.receive({&one, 1}, net::soon());
    EXPECT_EQ(status.code(), Errc::unavailable) << status.to_string();
  }

  const std::uint64_t seed_;
  Rng rng_;
  net::TestDirectory directory_;
  net::Key key_ = net::random_key();
  net::TcpTransport tcp_;
  std::vector<net::Transport*> transports_{&tcp_};
  net::Endpoint endpoint_;
  FakeMeta meta_;
  MemoryBlocks blocks_;
  Server server_;
};
INSTANTIATE_TEST_SUITE_P(Over, AttackTest, testing::Values("unix", "tcp"),
                         [](const auto& one) { return one.param; });

TEST_P(AttackTest, NoiseInsteadOfAHandshake) {
  for (int i = 0; i < 200; ++i) {
    const auto connection = connect();
    send(*connection,
         bytes_of(i % 10 == 0 ? std::string(64, '\xff') : random_bytes(rng_.below(300))));
    if (i % 20 == 0) expect_served();
  }
  expect_served();
}

TEST_P(AttackTest, HandshakesCutAndFlippedAnywhere) {
  for (int i = 0; i < 200; ++i) {
    const auto connection = connect();
    net::ClientHello hello;
    std::string bytes(text_of(std::as_bytes(std::span(&hello, 1))));
    if (rng_.one_in(2)) bytes[rng_.below(16)] ^= static_cast<char>(1 << rng_.below(8));
    send(*connection, bytes_of(bytes.substr(0, rng_.below(bytes.size() + 1))));
    if (rng_.one_in(2)) send(*connection, bytes_of(random_bytes(rng_.below(64))));
  }
  expect_served();
}

TEST_P(AttackTest, StrangersThatSayNothingAreCutAndHoldNobodyUp) {
  std::vector<std::unique_ptr<net::Connection>> silent;
  for (int i = 0; i < 30; ++i) {  // more than may wait at once: the oldest go
    silent.push_back(connect());
    send(*silent.back(), bytes_of("SLH"));
  }
  expect_served();
  for (const auto& connection : silent) expect_ended(*connection);
}

TEST_P(AttackTest, AFrameBeforeTheVerdictEndsTheConnection) {
  const auto connection = connect();
  net::ClientHello hello;
  send(*connection, std::as_bytes(std::span(&hello, 1)));
  send(*connection, bytes_of(random_bytes(32) + valid_frame(net::Purpose::meta)));
  expect_ended(*connection);
  expect_served();
}

TEST_P(AttackTest, MutatedFramesFromProvenPeers) {
  for (int i = 0; i < 400; ++i) {
    const auto purpose = rng_.one_in(2) ? net::Purpose::meta : net::Purpose::data;
    const auto connection = greeted(purpose);
    std::string bytes = valid_frame(purpose);
    for (std::uint64_t flips = rng_.below(4); flips > 0; --flips) {
      bytes[rng_.below(std::min<std::size_t>(bytes.size(), 200))] ^=
          static_cast<char>(1 << rng_.below(8));
    }
    if (rng_.one_in(3)) bytes.resize(rng_.below(bytes.size() + 1));
    send(*connection, bytes_of(bytes));
    if (rng_.one_in(3)) {
      std::byte answer[sizeof(FrameHeader)];
      (void)connection->receive(answer, Deadline::after(Milliseconds(5)));
    }
    if (i % 50 == 0) expect_served();
  }
  expect_served();
}

TEST_P(AttackTest, SealedLiesAboutLengths) {
  for (int i = 0; i < 100; ++i) {
    const auto purpose = rng_.one_in(2) ? net::Purpose::meta : net::Purpose::data;
    const auto connection = greeted(purpose);
    FrameHeader header;
    header.kind =
        purpose == net::Purpose::meta ? FrameKind::meta_request : FrameKind::block_request;
    header.method = static_cast<std::uint16_t>(1 + rng_.below(7));
    switch (rng_.below(4)) {
      case 0:
        header.payload_length = static_cast<std::uint32_t>(rng_.next());
        break;
      case 1:
        header.bulk_length = rng_.next();
        break;
      case 2:
        header.extension_length = static_cast<std::uint16_t>(rng_.next());
        break;
      default:
        header.capability_length = static_cast<std::uint16_t>(rng_.next());
        break;
    }
    header.header_check = crc32c(image_of(header).first(100));
    send(*connection, image_of(header));
    send(*connection, bytes_of(random_bytes(rng_.below(2000))));
  }
  expect_served();
}

TEST_P(AttackTest, SlowPeersHoldNoWorkerForLong) {
  std::vector<std::unique_ptr<net::Connection>> slow;
  for (int i = 0; i < 6; ++i) {  // three times the workers
    slow.push_back(greeted(net::Purpose::data));
    FrameHeader header;
    header.kind = FrameKind::block_request;
    header.method = 1;
    header.bulk_length = i % 3 == 2 ? 1000 : 0;
    const std::string payload(32, 'p');
    seal(header, {}, bytes_of(payload));
    const std::string whole = std::string(text_of(image_of(header))) + payload;
    send(*slow.back(), bytes_of(whole.substr(0, i % 3 == 0   ? 50
                                                : i % 3 == 1 ? 110
                                                             : whole.size())));
  }
  expect_served();
  for (const auto& connection : slow) expect_ended(*connection);
  expect_served();
}

TEST_P(AttackTest, ReadersThatNeverReadAreCut) {
  std::vector<std::byte> bytes(kBlockSize);
  const BlockId id{BranchId(1), SliceId(1), 0};
  {
    ChannelOptions options;
    options.purpose = net::Purpose::data;
    Channel way(endpoint_, key_, transports_, options);
    Call call;
    call.deadline = Deadline::after(seconds(20));
    MemorySource source(bytes);
    ASSERT_TRUE(BlockStub(way).put(call, put_of(id, bytes), source).ok());
  }
  std::vector<std::unique_ptr<net::Connection>> deaf;
  for (int i = 0; i < 4; ++i) {
    deaf.push_back(greeted(net::Purpose::data));
    FrameHeader header;
    header.kind = FrameKind::block_request;
    header.method = 2;
    WireGet get;
    get.owner = get.slice = 1;
    get.length = kBlockSize;
    const ByteSpan payload = std::as_bytes(std::span(&get, 1));
    seal(header, {}, payload);
    for (int n = 0; n < 4; ++n) {
      send(*deaf.back(), image_of(header));
      send(*deaf.back(), payload);
    }
  }
  expect_served();
}

TEST_P(AttackTest, PeersThatVanishInTheMiddle) {
  const auto bytes = random_bytes(1 << 20);
  for (int i = 0; i < 60; ++i) {
    const auto connection = greeted(net::Purpose::data);
    FrameHeader header;
    header.kind = FrameKind::block_request;
    header.method = 1;
    header.bulk_length = bytes.size();
    std::string payload(32 + 4 * 16, '\0');
    payload[24] = 16;  // checksums
    seal(header, {}, bytes_of(payload));
    const std::string whole = std::string(text_of(image_of(header))) + payload + bytes;
    send(*connection, bytes_of(std::string_view(whole).substr(0, rng_.below(whole.size()))));
  }
  expect_served();
  EXPECT_EQ(blocks_.puts(), 0u);
}

TEST_P(AttackTest, TheServerStopsInTheMiddleOfIt) {
  std::atomic<bool> done{false};
  std::vector<std::thread> attackers;
  for (int t = 0; t < 3; ++t) {
    attackers.emplace_back([&, t] {
      Rng rng(seed_ + 1 + static_cast<std::uint64_t>(t));
      while (!done) {
        auto connection = tcp_.connect(endpoint_, Deadline::after(seconds(1)));
        if (!connection.ok()) continue;
        (void)net::greet(**connection, key_, {}, Deadline::after(seconds(1)));
        const std::string noise(rng.below(200), 'x');
        send(**connection, bytes_of(noise));
      }
    });
  }
  std::this_thread::sleep_for(Milliseconds(50));
  server_.stop();
  done = true;
  for (auto& attacker : attackers) attacker.join();
  EXPECT_EQ(server_.counts().connections, 0u);
}

}  // namespace
}  // namespace starlane::rpc
