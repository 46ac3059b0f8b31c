// What every Transport must do, as tests that run over each: include in one test file of a binary,
// with an instance of TransportCase for each transport.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>

#include <functional>
#include <thread>
#include <vector>

#include "common/rng.h"
#include "net/test_links.h"

namespace starlane::net {

struct TransportCase {
  std::string name;
  std::function<std::unique_ptr<Transport>()> make;
  std::function<Endpoint(const TestDirectory&)> endpoint;  // to listen on; each call another
};

class TransportConformance : public testing::TestWithParam<TransportCase> {
 protected:
  void SetUp() override {
    transport_ = GetParam().make();
    auto listener = transport_->listen(GetParam().endpoint(directory_));
    ASSERT_TRUE(listener.ok()) << listener.status().to_string();
    listener_ = std::move(listener).value();
    ends_ = connect_ends(*transport_, *listener_);
    ASSERT_NE(ends_.server, nullptr);
  }
  static Status send(Connection& to, ByteSpan bytes) {
    return to.send(std::span(&bytes, 1), soon());
  }
  static std::vector<std::byte> noise(std::size_t size, std::uint64_t seed) {
    std::vector<std::byte> bytes(size);
    Rng rng(seed);
    for (auto& byte : bytes) byte = static_cast<std::byte>(rng.next());
    return bytes;
  }

  TestDirectory directory_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Listener> listener_;
  Ends ends_;  // gone before their transport
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportConformance);

TEST_P(TransportConformance, ADescriptorTravelsOrNothingDoes) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::pwrite(fd.get(), "hello", 5, 0), 5);
  const std::string text = "with it";
  const ByteSpan bytes = bytes_of(text);
  const Status sent = ends_.client->send_with(fd.get(), std::span(&bytes, 1), soon());
  EXPECT_FALSE(ends_.server->take_descriptor());
  if (sent.code() == Errc::unsupported) {
    EXPECT_FALSE(*ends_.server->arrived(1));
    return;
  }
  ASSERT_TRUE(sent.ok());
  std::vector<std::byte> got(text.size());
  ASSERT_TRUE(ends_.server->receive(got, soon()).ok());
  EXPECT_EQ(text_of(got), text);
  const UniqueFd there = ends_.server->take_descriptor();
  char content[5] = {};
  ASSERT_EQ(::pread(there.get(), content, 5, 0), 5);
  EXPECT_EQ(std::string_view(content, 5), "hello");
  EXPECT_NE(::fcntl(there.get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_FALSE(ends_.server->take_descriptor());
}

TEST_P(TransportConformance, DescriptorsThatNobodyTakesDoNotPileUp) {
  const auto open_now = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC));
  const auto before = open_now();
  const ByteSpan byte = bytes_of("x");
  for (int i = 0; i < 20; ++i) {
    if (!ends_.client->send_with(fd.get(), std::span(&byte, 1), soon()).ok()) return;
    std::byte got{};
    ASSERT_TRUE(ends_.server->receive(std::span(&got, 1), soon()).ok());
  }
  EXPECT_LE(open_now(), before + 1);
}

TEST_P(TransportConformance, BytesArriveInOrderWhateverThePieces) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const auto sent = noise(9 << 20, seed);
  std::thread writer([&] {
    Rng rng(seed + 1);
    for (std::size_t at = 0; at < sent.size();) {
      std::vector<ByteSpan> pieces;
      const std::size_t scale = rng.one_in(3) ? 2 << 20 : 3000;
      for (std::size_t i = 0, count = 1 + rng.below(40); i < count && at < sent.size(); ++i) {
        const std::size_t length = std::min<std::size_t>(rng.below(scale), sent.size() - at);
        pieces.push_back(ByteSpan(sent).subspan(at, length));
        at += length;
      }
      ASSERT_TRUE(ends_.client->send(pieces, soon()).ok());
    }
  });
  Rng rng(seed + 2);
  std::vector<std::byte> got(sent.size());
  for (std::size_t at = 0; at < got.size();) {
    const std::size_t scale = rng.one_in(3) ? 2 << 20 : 3000;
    const std::size_t length = std::min<std::size_t>(rng.below(scale), got.size() - at);
    if (rng.one_in(4)) {
      const auto there = ends_.server->arrived(rng.below(Connection::kReadAhead));
      EXPECT_TRUE(there.ok() || there.code() == Errc::unavailable);
    }
    ASSERT_TRUE(ends_.server->receive(MutableByteSpan(got).subspan(at, length), soon()).ok());
    at += length;
  }
  writer.join();
  EXPECT_TRUE(got == sent);
}

TEST_P(TransportConformance, ArrivedNeitherWaitsNorLosesAnything) {
  EXPECT_FALSE(*ends_.server->arrived(1));
  const auto sent = noise(100, 1);
  ASSERT_TRUE(send(*ends_.client, ByteSpan(sent).first(40)).ok());
  ASSERT_TRUE(poll_until(ends_.server->descriptor(), POLLIN, soon()).ok());
  while (!*ends_.server->arrived(40)) std::this_thread::yield();
  EXPECT_FALSE(*ends_.server->arrived(41));
  EXPECT_EQ(ends_.server->buffered(), 40u);
  ASSERT_TRUE(send(*ends_.client, ByteSpan(sent).subspan(40)).ok());
  while (!*ends_.server->arrived(100)) std::this_thread::yield();
  std::vector<std::byte> got(100);
  ASSERT_TRUE(ends_.server->receive(got, soon()).ok());
  EXPECT_TRUE(got == sent);
  EXPECT_EQ(ends_.server->buffered(), 0u);
}

TEST_P(TransportConformance, WhatWasSentBeforeTheEndStillArrives) {
  const auto sent = noise(1000, 2);
  ASSERT_TRUE(send(*ends_.client, sent).ok());
  ends_.client.reset();
  std::vector<std::byte> got(1000);
  ASSERT_TRUE(ends_.server->receive(got, soon()).ok());
  EXPECT_TRUE(got == sent);
  std::byte one;
  EXPECT_EQ(ends_.server->receive({&one, 1}, soon()).code(), Errc::unavailable);
  EXPECT_EQ(ends_.server->arrived(1).code(), Errc::unavailable);
}

TEST_P(TransportConformance, DescriptorBecomesReadableAtTheEnd) {
  ends_.client.reset();
  ASSERT_TRUE(poll_until(ends_.server->descriptor(), POLLIN, soon()).ok());
  EXPECT_EQ(ends_.server->arrived(1).code(), Errc::unavailable);
}

TEST_P(TransportConformance, ReceiveGivesUpAtItsDeadline) {
  std::byte one;
  EXPECT_EQ(ends_.server->receive({&one, 1}, Deadline::after(Milliseconds(20))).code(),
            Errc::timeout);
}

TEST_P(TransportConformance, SendGivesUpAtItsDeadlineWhenNobodyReceives) {
  const auto much = noise(1 << 20, 3);
  Status status;
  for (int i = 0; i < 256 && status.ok(); ++i) {
    const ByteSpan piece = much;
    status = ends_.client->send(std::span(&piece, 1), Deadline::after(Milliseconds(20)));
  }
  EXPECT_EQ(status.code(), Errc::timeout) << status.to_string();
}

TEST_P(TransportConformance, ShutdownFreesWhoWaits) {
  Status status;
  std::thread waiting([&] {
    std::byte one;
    status = ends_.server->receive({&one, 1}, Deadline::never());
  });
  ends_.server->shutdown();
  waiting.join();
  EXPECT_EQ(status.code(), Errc::unavailable);
  std::byte one;
  EXPECT_EQ(ends_.client->receive({&one, 1}, soon()).code(), Errc::unavailable);
}

TEST_P(TransportConformance, SendingToTheDeadFails) {
  ends_.server.reset();
  const auto some = noise(1 << 16, 4);
  Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i) status = send(*ends_.client, some);
  EXPECT_EQ(status.code(), Errc::unavailable) << status.to_string();
}

TEST_P(TransportConformance, OneListensAtATime) {
  EXPECT_EQ(transport_->listen(listener_->local()).code(), Errc::exists);
}

TEST_P(TransportConformance, NobodyListensAfterTheListenerIsGone) {
  const Endpoint where = listener_->local();
  listener_.reset();
  EXPECT_EQ(transport_->connect(where, soon()).code(), Errc::unavailable);
  EXPECT_TRUE(transport_->listen(where).ok());  // and the place is free again
}

}  // namespace starlane::net
