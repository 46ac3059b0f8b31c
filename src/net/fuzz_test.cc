// What a user and a peer give a process to find and to trust each other, fuzzed (common/fuzz.h):
// endpoints, key files, and the handshake from both sides.
#include "common/fuzz.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "common/hex.h"
#include "net/endpoint.h"
#include "net/handshake.h"
#include "net/test_links.h"

namespace starlane::net {
namespace {

TEST(Fuzz, Endpoints) {
  Fuzz fuzz("net-endpoints");
  for (const char* text : {"unix:/run/starlane/meta.sock", "tcp:host.example:7001", "tcp:[::1]:0",
                           "tcp:127.0.0.1:65535", "loop:name"}) {
    const auto parsed = Endpoint::parse(text);
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(parsed->to_string(), text);
    fuzz.add(std::string_view(text));
  }
  fuzz.run([](ByteSpan bytes) {
    const auto endpoint = Endpoint::parse(text_of(bytes));
    if (!taken(endpoint)) return false;
    const auto again = Endpoint::parse(endpoint->to_string());
    EXPECT_TRUE(again.ok() && *again == *endpoint) << endpoint->to_string();
    return true;
  });
}

TEST(Fuzz, KeyFiles) {
  Fuzz fuzz("net-keys");
  const TestDirectory directory;
  const std::string path = directory.file("key");
  ASSERT_TRUE(make_key_file(path).ok());
  std::ifstream made(path);
  const std::string good(std::istreambuf_iterator<char>(made), {});
  fuzz.add(good);
  fuzz.add(good.substr(0, good.size() - 1));
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  fuzz.run([&](ByteSpan bytes) {
    EXPECT_EQ(::ftruncate(file.get(), 0), 0);
    EXPECT_EQ(::pwrite(file.get(), bytes.data(), bytes.size(), 0), ssize_t(bytes.size()));
    const auto key = load_key(path);
    if (!taken(key)) return false;
    std::string lower(text_of(bytes).substr(0, 64));
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    EXPECT_EQ(hex(key->bytes), lower);
    return true;
  });
}

/// A stream whose other end has said all that it will say.
struct Said {
  explicit Said(ByteSpan bytes) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    peer = UniqueFd(ends[0]);
    EXPECT_EQ(::send(ends[0], bytes.data(), bytes.size(), 0), ssize_t(bytes.size()));
    ::shutdown(ends[0], SHUT_WR);
    connection = std::make_unique<SocketConnection>(UniqueFd(ends[1]), "a peer");
  }
  UniqueFd peer;
  std::unique_ptr<Connection> connection;
};

TEST(Fuzz, Handshakes) {
  Fuzz fuzz("net-handshake");
  const Key key = random_key();
  fuzz.add_plain(ClientHello{});
  fuzz.add_plain(ServerHello{});
  fuzz.add(std::string(text_of(std::as_bytes(std::span(&key, 1)))) + "behind it");
  fuzz.run([&](ByteSpan bytes) {
    const Said to_client(bytes);
    // Nobody who does not hold the key is agreed with.
    EXPECT_FALSE(taken(greet(*to_client.connection, key, {Purpose::meta, 0, 7},
                             Deadline::after(std::chrono::seconds(5)))));
    const Said to_server(bytes);
    ServerHandshake server(kFeatureExposedMemory);
    Result<bool> done = false;
    for (int i = 0; i < 3 && done.ok() && !*done; ++i)
      done = server.advance(*to_server.connection, key, false);
    EXPECT_FALSE(done.ok() && *done);
    return !done.ok();
  });
}

}  // namespace
}  // namespace starlane::net
