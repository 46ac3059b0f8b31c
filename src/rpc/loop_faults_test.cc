// Calls over a way that loses, delays and repeats them by seed: no answer may reach another call,
// nothing that was not repeatable may be done twice by us, and what is numbered is done once in
// effect.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>

#include "common/rng.h"
#include "net/loop/loop_transport.h"
#include "net/test_links.h"
#include "rpc/fake_services.h"

namespace starlane::rpc {
namespace {

using std::chrono::seconds;

/// Counts how often each numbered request ran; answers with the number.
class Ledger {
 public:
  Status serve(const google::protobuf::Message& request, google::protobuf::Message* reply) {
    const auto& create = dynamic_cast<const pb::CreateRequest&>(request);
    MutexLock lock(m_);
    ++runs_[create.parent()];
    dynamic_cast<pb::NewEntry&>(*reply).mutable_attributes()->set_inode(create.parent());
    return {};
  }
  int runs(std::uint64_t number) const {
    MutexLock lock(m_);
    const auto found = runs_.find(number);
    return found == runs_.end() ? 0 : found->second;
  }

 private:
  mutable Mutex m_;
  std::map<std::uint64_t, int> runs_ SL_GUARDED_BY(m_);
};

class LoopFaultsTest : public testing::Test {
 protected:
  LoopFaultsTest()
      : seed_(random_seed()),
        loop_(seed_),
        meta_([this](auto, const Call&, const auto& request, auto* reply) {
          return ledger_.serve(request, reply);
        }),
        server_(options(), {&meta_, &blocks_}, key_, transports_) {
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed_));
    EXPECT_TRUE(server_.start().ok());
    EXPECT_TRUE(server_.listen(endpoint_).ok());
  }
  static ServerOptions options() {
    ServerOptions options;
    options.workers = 4;
    return options;
  }
  std::unique_ptr<Channel> channel(net::Purpose purpose) {
    ChannelOptions options;
    options.purpose = purpose;
    options.connections = 4;
    options.backoff_min = Milliseconds(1);
    options.attempts = 50;
    return std::make_unique<Channel>(endpoint_, key_, transports_, options);
  }
  /// Runs `call` on several threads, each with numbers of its own.
  template <typename F>
  void in_parallel(std::uint64_t calls, F call) {
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 4; ++t) {
      threads.emplace_back([=] {
        for (std::uint64_t i = 0; i < calls; ++i) call(1 + t * calls + i);
      });
    }
    for (auto& thread : threads) thread.join();
  }
  static Call call() {
    Call call;
    call.deadline = Deadline::after(seconds(60));
    return call;
  }

  const std::uint64_t seed_;
  const net::Endpoint endpoint_{net::Endpoint::Kind::loop, "server", 0};
  net::Key key_ = net::random_key();
  net::LoopTransport loop_;
  std::vector<net::Transport*> transports_{&loop_};
  Ledger ledger_;
  FakeMeta meta_;
  MemoryBlocks blocks_{9'000};
  Server server_;
};

TEST_F(LoopFaultsTest, PlainCallsRunAtMostOnceAndIfAnsweredOnce) {
  loop_.set_faults({.refuse_connect = 20,
                    .lose_request = 10,
                    .lose_reply = 10,
                    .delay = 5,
                    .longest_delay = Milliseconds(2)});
  const auto way = channel(net::Purpose::meta);
  MetaStub stub(*way);
  std::atomic<int> lost{0};
  in_parallel(200, [&](std::uint64_t number) {
    pb::CreateRequest request;
    request.set_parent(number);
    pb::NewEntry reply;
    const Status status = stub.create(call(), request, &reply);
    if (status.ok()) {
      EXPECT_EQ(reply.attributes().inode(), number);
      EXPECT_EQ(ledger_.runs(number), 1);
    } else {
      EXPECT_EQ(status.code(), Errc::unavailable) << status.to_string();
      EXPECT_LE(ledger_.runs(number), 1);
      ++lost;
    }
  });
  EXPECT_GT(lost, 0);
  EXPECT_GT(loop_.faults_met(), 50u);
}

TEST_F(LoopFaultsTest, NumberedCallsGetThroughWhateverHappens) {
  loop_.set_faults({.refuse_connect = 20,
                    .lose_request = 10,
                    .late_request = 10,
                    .lose_reply = 10,
                    .repeat_request = 5,
                    .delay = 5,
                    .longest_delay = Milliseconds(2)});
  const auto way = channel(net::Purpose::meta);
  MetaStub stub(*way);
  std::atomic<int> again{0};
  in_parallel(200, [&](std::uint64_t number) {
    pb::CreateRequest request;
    request.mutable_on()->set_request(number);
    request.set_parent(number);
    pb::NewEntry reply;
    const Status status = stub.create(call(), request, &reply);
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(reply.attributes().inode(), number);
    EXPECT_GE(ledger_.runs(number), 1);
    if (ledger_.runs(number) > 1) ++again;
  });
  EXPECT_GT(again, 0);  // the server must know its numbers
  EXPECT_GT(way->counts().repeats, 0u);
}

TEST_F(LoopFaultsTest, BlocksAreNeverMixedUp) {
  loop_.set_faults({.lose_request = 12,
                    .late_request = 12,
                    .lose_reply = 12,
                    .repeat_request = 6,
                    .delay = 6,
                    .longest_delay = Milliseconds(1)});
  const auto way = channel(net::Purpose::data);
  BlockStub stub(*way);
  in_parallel(40, [&](std::uint64_t number) {
    Rng rng(seed_ + number);
    std::vector<std::byte> bytes(1 + rng.below(number % 8 == 0 ? 2 << 20 : 40'000));
    for (auto& byte : bytes) byte = static_cast<std::byte>(rng.next());
    const BlockId id{BranchId(1), SliceId(number), 0};
    MemorySource source(bytes);
    EXPECT_TRUE(stub.put(call(), put_of(id, bytes), source).ok());
    std::vector<std::byte> got(bytes.size());
    LandingSink sink(got);
    const auto reply =
        stub.get(call(), {TargetId(1), id, 0, static_cast<std::uint32_t>(got.size())}, sink);
    EXPECT_TRUE(reply.ok()) << reply.status().to_string();
    EXPECT_TRUE(got == bytes) << number;
  });
}

}  // namespace
}  // namespace starlane::rpc
