// For tests of net and rpc: a directory that goes away, a key, and a pair of connected ends over
// any transport.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "codec/mac.h"
#include "net/key.h"
#include "net/tcp/socket_connection.h"
#include "net/transport.h"

namespace starlane::net {

class TestDirectory {
 public:
  TestDirectory() {
    char name[] = "/tmp/starlane-net-XXXXXX";
    path_ = ::mkdtemp(name);
  }
  ~TestDirectory() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline Key random_key() {
  Key key;
  EXPECT_TRUE(fill_random(key.bytes).ok());
  return key;
}

struct Ends {
  std::unique_ptr<Connection> client, server;
};

inline Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }

inline Ends connect_ends(Transport& transport, Listener& listener) {
  Ends ends;
  auto client = transport.connect(listener.local(), soon());
  EXPECT_TRUE(client.ok()) << client.status().to_string();
  if (!client.ok()) return ends;
  ends.client = std::move(client).value();
  EXPECT_TRUE(poll_until(listener.descriptor(), 1 /* POLLIN */, soon()).ok());
  auto server = listener.accept();
  EXPECT_TRUE(server.ok());
  ends.server = std::move(server).value();
  EXPECT_NE(ends.server, nullptr);
  return ends;
}

}  // namespace starlane::net
