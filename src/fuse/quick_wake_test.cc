#include "fuse/quick_wake.h"

#include <gtest/gtest.h>

#include <fstream>

#include "fuse/testing.h"

namespace starlane::fuse {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

TEST(WakeLatency, FollowsFromHowProcessorsSleep) {
  const TemporaryDirectory directory;
  const fs::path sys = directory.path();
  const fs::path cpu = sys / "devices/system/cpu";
  EXPECT_EQ(wanted_wake_latency_us(sys).code(), Errc::unsupported);
  write(cpu / "cpuidle/current_driver", "none\n");
  EXPECT_EQ(wanted_wake_latency_us(sys).code(), Errc::unsupported);
  write(cpu / "cpuidle/current_driver", "intel_idle\n");
  EXPECT_EQ(wanted_wake_latency_us(sys).code(), Errc::unsupported);
  write(cpu / "cpu0/cpuidle/state1/latency", "2\n");
  EXPECT_EQ(wanted_wake_latency_us(sys).value(), 2);
  write(cpu / "cpuidle/current_driver", "haltpoll\n");
  write(sys / "module/haltpoll/parameters/guest_halt_poll_ns", "200000\n");
  EXPECT_EQ(wanted_wake_latency_us(sys).code(), Errc::unsupported);
  write(sys / "module/haltpoll/parameters/guest_halt_poll_ns", "0\n");
  if (std::thread::hardware_concurrency() <= 16) {
    EXPECT_EQ(wanted_wake_latency_us(sys).value(), 0);
  }
}

/// A file in place of the device: what was wished last.
class QuickWakeTest : public testing::Test {
 protected:
  std::int32_t wished() const {
    std::ifstream stream(options_.device, std::ios::binary);
    std::int32_t value = -1;
    stream.read(reinterpret_cast<char*>(&value), sizeof value);
    return value;
  }
  std::unique_ptr<QuickWake> start() {
    write(options_.device, "");
    auto started = QuickWake::start(options_, requests_);
    EXPECT_TRUE(started.ok()) << started.status().to_string();
    return std::move(started.value());
  }
  void serve(QuickWake& wake, int requests) {
    for (int i = 0; i < requests; ++i) wake.note(++requests_);
  }

  const TemporaryDirectory directory_;
  QuickWake::Options options_{.latency_us = 3, .device = directory_.path() + "/device"};
  std::atomic<std::uint64_t> requests_{0};
};

constexpr std::int32_t kNoWish = 2'000'000'000;

TEST_F(QuickWakeTest, IsWishedWhileRequestsComeFast) {
  options_.within = std::chrono::hours(1);
  options_.quiet = Milliseconds(20);
  const auto wake = start();
  EXPECT_EQ(wished(), kNoWish);
  serve(*wake, 200);
  EXPECT_EQ(wished(), 3);
  while (wake->awake()) std::this_thread::sleep_for(Milliseconds(5));
  EXPECT_EQ(wished(), kNoWish);
  serve(*wake, 200);
  EXPECT_TRUE(wake->awake());
}

TEST_F(QuickWakeTest, SlowRequestsWakeNobody) {
  options_.within = Milliseconds(0);
  const auto wake = start();
  serve(*wake, 64);
  std::this_thread::sleep_for(Milliseconds(2));
  serve(*wake, 64);
  EXPECT_FALSE(wake->awake());
  EXPECT_EQ(wished(), kNoWish);
}

TEST_F(QuickWakeTest, NeedsTheDevice) {
  options_.device = directory_.path() + "/absent";
  EXPECT_EQ(QuickWake::start(options_, requests_).code(), Errc::not_found);
}

}  // namespace
}  // namespace starlane::fuse
