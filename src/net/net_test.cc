#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <fstream>
#include <future>

#include "net/handshake.h"
#include "net/loop/loop_transport.h"
#include "net/tcp/tcp_transport.h"
#include "net/transport_conformance.h"

namespace starlane::net {
namespace {

TEST(Endpoint, ParsesWhatItPrints) {
  for (const char* text : {"unix:/run/starlane/meta.sock", "tcp:127.0.0.1:7001", "tcp:[::1]:7001",
                           "tcp:node7:0", "loop:meta"}) {
    const auto endpoint = Endpoint::parse(text);
    ASSERT_TRUE(endpoint.ok()) << text;
    EXPECT_EQ(endpoint->to_string(), text);
  }
  EXPECT_EQ(Endpoint::parse("tcp:[::1]:7001")->address, "::1");
}

TEST(Endpoint, RefusesWhatIsNone) {
  for (const char* text : {"", "unix:", "unix:relative", "tcp:", "tcp:host", "tcp:host:", "tcp::1",
                           "tcp:host:65536", "tcp:host:-1", "tcp:host:7x", "tcp:::1:7", "tcp:[]:7",
                           "tcp:[[]]:7", "tcp:a]:7", "tcp:[::1:7", "loop:", "http://x"}) {
    EXPECT_EQ(Endpoint::parse(text).code(), Errc::invalid) << text;
  }
  EXPECT_EQ(Endpoint::parse(std::string("unix:/a\0b", 9)).code(), Errc::invalid);
  const auto long_path = Endpoint::parse("unix:/" + std::string(120, 'x'));
  EXPECT_NE(long_path.status().text().find("107"), std::string::npos);
}

TEST(Key, IsMadeOnceForItsOwnerOnlyAndReadBack) {
  const TestDirectory directory;
  const std::string path = directory.file("key");
  const mode_t old = ::umask(0);
  ASSERT_TRUE(make_key_file(path).ok());
  ::umask(old);
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  const auto key = load_key(path);
  ASSERT_TRUE(key.ok()) << key.status().to_string();
  std::string text;
  std::ifstream(path) >> text;
  ASSERT_EQ(text.size(), 64u);
  char first[3];
  std::snprintf(first, sizeof first, "%02x", std::to_integer<unsigned>(key->bytes[0]));
  EXPECT_EQ(text.substr(0, 2), first);
  EXPECT_EQ(make_key_file(path).code(), Errc::exists);
  const auto again = load_key(path);
  EXPECT_TRUE(again->bytes == key->bytes);
  ASSERT_TRUE(make_key_file(directory.file("other")).ok());
  EXPECT_FALSE(load_key(directory.file("other"))->bytes == key->bytes);
}

TEST(Key, LooseOrDamagedFilesAreRefusedWithASentence) {
  const TestDirectory directory;
  const std::string path = directory.file("key");
  EXPECT_EQ(load_key(path).code(), Errc::not_found);
  EXPECT_EQ(load_key(directory.file("")).code(), Errc::invalid);  // a directory
  ASSERT_TRUE(make_key_file(path).ok());
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  const auto loose = load_key(path);
  EXPECT_EQ(loose.code(), Errc::access);
  EXPECT_NE(loose.status().text().find("chmod 600"), std::string::npos);
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  for (const std::string& text :
       {std::string(), std::string(63, 'a'), std::string(66, 'a'), std::string(64, 'g')}) {
    std::ofstream(path, std::ios::trunc) << text;
    EXPECT_EQ(load_key(path).code(), Errc::invalid) << text;
  }
}

Endpoint unix_endpoint(const TestDirectory& directory) {
  static std::atomic<int> number{0};
  return {Endpoint::Kind::unix_socket, directory.file("s" + std::to_string(number++)), 0};
}
Endpoint tcp_endpoint(const TestDirectory&) { return {Endpoint::Kind::tcp, "127.0.0.1", 0}; }

Endpoint loop_endpoint(const TestDirectory&) { return {Endpoint::Kind::loop, "name", 0}; }

INSTANTIATE_TEST_SUITE_P(
    Net, TransportConformance,
    testing::Values(
        TransportCase{"unix", [] { return std::make_unique<TcpTransport>(); }, unix_endpoint},
        TransportCase{"tcp", [] { return std::make_unique<TcpTransport>(); }, tcp_endpoint},
        TransportCase{"loop", [] { return std::make_unique<LoopTransport>(); }, loop_endpoint}),
    [](const auto& one) { return one.param.name; });

TEST(UnixListener, ReplacesWhatADeadProcessLeftAndNothingElse) {
  const TestDirectory directory;
  TcpTransport transport;
  const Endpoint where = unix_endpoint(directory);
  std::ofstream(where.address) << "a file";
  EXPECT_EQ(transport.listen(where).code(), Errc::exists);
  std::filesystem::remove(where.address);
  const int left = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::strncpy(name.sun_path, where.address.c_str(), sizeof name.sun_path - 1);
  ASSERT_EQ(::bind(left, reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
  ::close(left);
  ASSERT_TRUE(std::filesystem::exists(where.address));
  const auto listener = transport.listen(where);
  ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  struct stat info {};
  ASSERT_EQ(::stat(where.address.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

class HandshakeTest : public testing::Test {
 protected:
  void SetUp() override {
    auto listener = transport_.listen(unix_endpoint(directory_));
    ASSERT_TRUE(listener.ok());
    listener_ = std::move(listener).value();
    ends_ = connect_ends(transport_, *listener_);
  }
  /// The server's side until it is done or fails.
  Result<bool> shake(const Key& key, bool full = false, std::uint8_t features = 0) {
    ServerHandshake server(features);
    for (;;) {
      const auto step = server.advance(*ends_.server, key, full);
      if (!step.ok() || *step) {
        agreed_ = server.agreed();
        return step;
      }
      if (const Status s = poll_until(ends_.server->descriptor(), POLLIN, soon()); !s.ok())
        return s;
    }
  }
  std::future<Result<Agreed>> greet_aside(const Key& key, Agreed wanted) {
    return std::async(std::launch::async,
                      [this, key, wanted] { return greet(*ends_.client, key, wanted, soon()); });
  }

  TestDirectory directory_;
  TcpTransport transport_;
  std::unique_ptr<Listener> listener_;
  Ends ends_;
  Agreed agreed_;
};

TEST_F(HandshakeTest, BothAgreeWhenTheKeysAreTheSame) {
  const Key key = random_key();
  auto client = greet_aside(key, {Purpose::data, 3, 42});
  ASSERT_TRUE(shake(key, false, kFeatureExposedMemory).ok());
  const auto agreed = client.get();
  ASSERT_TRUE(agreed.ok()) << agreed.status().to_string();
  EXPECT_EQ(agreed->features, kFeatureExposedMemory);
  EXPECT_EQ(agreed_.purpose, Purpose::data);
  EXPECT_EQ(agreed_.mount_nonce, 42u);
  EXPECT_EQ(agreed_.features, kFeatureExposedMemory);
}

TEST_F(HandshakeTest, TheClientNoticesAnotherKeyFirst) {
  auto client = greet_aside(random_key(), {});
  std::thread end([&] {  // the client hangs up before it sends its proof
    (void)client.wait_for(std::chrono::seconds(20));
    ends_.client->shutdown();
  });
  EXPECT_FALSE(shake(random_key()).ok());
  end.join();
  EXPECT_EQ(client.get().code(), Errc::unauthenticated);
}

TEST_F(HandshakeTest, TheServerRefusesAWrongProof) {
  const Key key = random_key();
  auto client = std::async(std::launch::async, [&] {
    ClientHello hello;
    hello.nonce[3] = std::byte{9};
    const ByteSpan first = std::as_bytes(std::span(&hello, 1));
    EXPECT_TRUE(ends_.client->send(std::span(&first, 1), soon()).ok());
    ServerHello server;
    EXPECT_TRUE(ends_.client->receive(std::as_writable_bytes(std::span(&server, 1)), soon()).ok());
    const ByteSpan reflected = std::as_bytes(std::span(server.proof));  // its own proof, sent back
    EXPECT_TRUE(ends_.client->send(std::span(&reflected, 1), soon()).ok());
    Verdict verdict;
    EXPECT_TRUE(ends_.client->receive(std::as_writable_bytes(std::span(&verdict, 1)), soon()).ok());
    return verdict.refusal;
  });
  EXPECT_EQ(shake(key).code(), Errc::unauthenticated);
  EXPECT_EQ(client.get(), static_cast<std::uint16_t>(Errc::unauthenticated));
}

TEST_F(HandshakeTest, AFullServerSaysBusy) {
  const Key key = random_key();
  auto client = greet_aside(key, {});
  EXPECT_EQ(shake(key, true).code(), Errc::busy);
  EXPECT_EQ(client.get().code(), Errc::busy);
}

TEST_F(HandshakeTest, AnotherMajorVersionIsRefusedByBoth) {
  ClientHello hello;
  hello.major = 2;
  const ByteSpan bytes = std::as_bytes(std::span(&hello, 1));
  ASSERT_TRUE(ends_.client->send(std::span(&bytes, 1), soon()).ok());
  EXPECT_EQ(shake(random_key()).code(), Errc::protocol);
  ServerHello server;
  ASSERT_TRUE(ends_.client->receive(std::as_writable_bytes(std::span(&server, 1)), soon()).ok());
  EXPECT_EQ(server.refusal, static_cast<std::uint8_t>(Errc::protocol));
  EXPECT_EQ(server.major, kHandshakeMajor);
}

TEST_F(HandshakeTest, AServerThatIsNoneOfOursIsNamed) {
  const std::string http = "HTTP/1.1 400 Bad Request\r\n" + std::string(100, ' ');
  const ByteSpan bytes = bytes_of(http);
  ASSERT_TRUE(ends_.server->send(std::span(&bytes, 1), soon()).ok());
  const auto agreed = greet(*ends_.client, random_key(), {}, soon());
  EXPECT_EQ(agreed.code(), Errc::protocol);
  EXPECT_NE(agreed.status().text().find("no starlane server"), std::string::npos);
}

TEST(HandshakeFormat, GoldenBytes) {
  ClientHello hello;
  hello.purpose = Purpose::data;
  hello.features = 1;
  hello.mount_nonce = 0x0807060504030201;
  hello.nonce.fill(std::byte{0xaa});
  const std::string expected =
      std::string("SLHS\x01\x00\x02\x01\x01\x02\x03\x04\x05\x06\x07\x08", 16) +
      std::string(32, '\xaa');
  EXPECT_EQ(text_of(std::as_bytes(std::span(&hello, 1))), expected);
  Verdict verdict;
  verdict.refusal = 72;
  EXPECT_EQ(text_of(std::as_bytes(std::span(&verdict, 1))), std::string("SLHS\x48\x00\x00\x00", 8));
}

}  // namespace
}  // namespace starlane::net
