#include "client/write/escrow.h"

#include <gtest/gtest.h>

#include <thread>

#include "client/write/fake_services.h"

namespace starlane::client {
namespace {

constexpr BranchId kBranch{7};
const Attachment kUs{SessionId(1), 1, false};

/// A volume with so much left of its quota.
class Quota final : public NoMeta {
 public:
  Status escrow(const Call&, const pb::EscrowRequest& request, pb::EscrowReply* reply) override {
    MutexLock lock(m_);
    ++calls_;
    if (away_) return Status(Errc::unavailable, "away");
    const std::uint64_t back = std::min(lane_, request.returned());
    lane_ -= back;
    free_ += back;
    if (limited_ && request.wanted() > lane_) {
      const std::uint64_t given = std::min(free_, request.wanted() - lane_);
      lane_ += given;
      free_ -= given;
    }
    reply->set_limited(limited_);
    reply->set_escrow(lane_);
    return {};
  }
  /// A commit that makes so much of the lane the file's.
  void spend(std::uint64_t bytes) {
    MutexLock lock(m_);
    ASSERT_LE(bytes, lane_);
    lane_ -= bytes;
  }
  std::uint64_t lane() { return MutexLock(m_), lane_; }
  int calls() { return MutexLock(m_), calls_; }

  Mutex m_;
  std::uint64_t free_ SL_GUARDED_BY(m_) = 1000;
  std::uint64_t lane_ SL_GUARDED_BY(m_) = 0;
  bool limited_ SL_GUARDED_BY(m_) = true;
  bool away_ SL_GUARDED_BY(m_) = false;
  int calls_ SL_GUARDED_BY(m_) = 0;
};

class EscrowTest : public testing::Test {
 protected:
  bool write(std::uint64_t bytes) {
    const bool room = escrow.promise(kBranch, kUs, bytes);
    if (room) dirty += bytes;
    escrow.published(kBranch, bytes);
    return room;
  }
  void commit(std::uint64_t bytes, std::uint64_t over_data = 0) {
    quota.spend(bytes - over_data);
    dirty -= bytes;
  }

  Quota quota;
  std::atomic<std::uint64_t> dirty{0};
  Escrow escrow{quota, [this](BranchId) { return dirty.load(); }, {.spare_bytes = 100}};
};

TEST_F(EscrowTest, PromisesNoMoreThanThereIs) {
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(write(100)) << i;
  EXPECT_FALSE(write(1));
  commit(1000);
  EXPECT_FALSE(write(1));
}

TEST_F(EscrowTest, AsksSeldom) {
  for (int i = 0; i < 500; ++i) EXPECT_TRUE(write(1));
  EXPECT_LE(quota.calls(), 6);
}

TEST_F(EscrowTest, WhatWasWrittenOverDataIsRoomAgain) {
  EXPECT_TRUE(write(1000));
  EXPECT_FALSE(write(500));
  commit(1000, 600);
  EXPECT_TRUE(write(600));
  EXPECT_FALSE(write(1));
}

TEST_F(EscrowTest, WritesUnderWayCount) {
  ASSERT_TRUE(escrow.promise(kBranch, kUs, 900));  // not dirty yet
  EXPECT_FALSE(write(101));
  EXPECT_TRUE(write(100));
  dirty += 900;
  escrow.published(kBranch, 900);
  EXPECT_FALSE(write(1));
}

TEST_F(EscrowTest, WhatIsNotPromisedIsReturned) {
  EXPECT_TRUE(write(10));
  EXPECT_EQ(quota.lane(), 110u);
  escrow.tick(system_clock().boot());
  EXPECT_EQ(quota.lane(), 110u) << "used a moment ago";
  escrow.tick(system_clock().boot() + std::chrono::seconds(2));
  EXPECT_EQ(quota.lane(), 10u);
  EXPECT_TRUE(write(5));
  escrow.give_back(kBranch);
  EXPECT_EQ(quota.lane(), 15u);
}

TEST_F(EscrowTest, AnotherSessionBeginsAnew) {
  EXPECT_TRUE(write(100));
  const Attachment next{SessionId(2), 2, false};
  const int before = quota.calls();
  EXPECT_TRUE(escrow.promise(kBranch, next, 1));
  EXPECT_GT(quota.calls(), before);
}

TEST_F(EscrowTest, WithoutAQuotaOrAServerNothingIsRefused) {
  quota.limited_ = false;
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(write(1'000'000));
  EXPECT_EQ(quota.calls(), 1);
  escrow.tick(system_clock().boot() + std::chrono::seconds(3));
  EXPECT_EQ(quota.calls(), 2) << "it may have one by now";
  escrow.tick(system_clock().boot() + std::chrono::seconds(6));
  EXPECT_EQ(quota.calls(), 2) << "nobody writes";
  quota.away_ = true;
  const Attachment next{SessionId(2), 2, false};
  EXPECT_TRUE(escrow.promise(kBranch, next, 1'000'000));
}

TEST_F(EscrowTest, ThreadsTogetherGetWhatThereIs) {
  std::atomic<int> taken{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < 200; ++n) taken += write(5);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken, 200);
}

}  // namespace
}  // namespace starlane::client
