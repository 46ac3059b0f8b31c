// Advisory locks of two hosts over the real metadata server: who waits, what a lock lets one see,
// and what the end of a session takes away.
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "client/mount/host_fixture.h"

namespace starlane::client::testing {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kToEnd = (std::uint64_t{1} << 63) - 1;
constexpr auto kSoon = std::chrono::seconds(20);  // a limit, not a measure

class LockTest : public ::testing::Test {
 protected:
  LockTest() {
    cluster.make_volume("v");
    EXPECT_TRUE(a.write_file("/volumes/v/f", "bytes").ok());
    EXPECT_TRUE(b.read_file("/volumes/v/f").ok());  // From here on the volume is shared.
    of_a = *a.open("/volumes/v/f", O_RDWR);
    of_b = *b.open("/volumes/v/f", O_RDWR);
  }

  static LockRequest request(std::uint64_t handle, std::uint64_t owner, LockType type,
                             std::uint64_t start = 0, std::uint64_t end = kToEnd) {
    return {.handle = handle,
            .owner = owner,
            .lock = {LockKind::record, type, start, end, static_cast<std::uint32_t>(owner)}};
  }
  static Errc set(Host& host, const LockRequest& request) {
    return host.vfs().set_lock(host.caller(), {}, request).code();
  }
  /// Of the answer that a waiting request gets one day.
  static std::future<Errc> await(Host& host, const LockRequest& request,
                                 std::uint64_t* unique = nullptr) {
    auto answer = std::make_shared<std::promise<Errc>>();
    const Caller caller = host.caller();
    if (unique != nullptr) *unique = caller.unique;
    host.vfs().await_lock(caller, {}, request,
                          [answer](const Status& status) { answer->set_value(status.code()); });
    return answer->get_future();
  }
  static bool waits(std::future<Errc>& answer) {
    return answer.wait_for(milliseconds(30)) == std::future_status::timeout;
  }
  static Errc soon(std::future<Errc>& answer) {
    if (answer.wait_for(kSoon) != std::future_status::ready) return Errc::timeout;
    return answer.get();
  }

  Cluster cluster;
  Host a{cluster, "a"};
  Host b{cluster, "b"};
  std::uint64_t of_a = 0, of_b = 0;
};

TEST_F(LockTest, HoldsBetweenHosts) {
  EXPECT_EQ(set(a, request(of_a, 1, LockType::write, 10, 19)), Errc::ok);
  EXPECT_EQ(set(b, request(of_b, 1, LockType::read, 19, 30)), Errc::would_block);
  EXPECT_EQ(set(b, request(of_b, 1, LockType::read, 20, 30)), Errc::ok);
  const auto found = b.vfs().test_lock(b.caller(), {}, request(of_b, 2, LockType::read));
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->type, LockType::write);
  EXPECT_EQ(found->start, 10u);
  EXPECT_EQ(found->end, 19u);
  EXPECT_EQ(set(a, request(of_a, 1, LockType::unlock, 10, 19)), Errc::ok);
  EXPECT_EQ(set(b, request(of_b, 1, LockType::read, 0, 30)), Errc::ok);
}

TEST_F(LockTest, ACloseUnlocksWhatItsOwnerHas) {
  EXPECT_EQ(set(a, request(of_a, 1, LockType::write, 0, 9)), Errc::ok);
  EXPECT_EQ(set(a, request(of_a, 2, LockType::write, 10, 19)), Errc::ok);
  LockRequest flock = request(of_a, 3, LockType::write);
  flock.lock.kind = LockKind::flock;
  EXPECT_EQ(set(a, flock), Errc::ok);
  LockRequest other = flock;
  other.handle = of_b;

  ASSERT_TRUE(a.vfs().flush(a.caller(), of_a, 1).ok());  // One process closes it, another does not.
  EXPECT_EQ(set(b, request(of_b, 1, LockType::write, 0, 9)), Errc::ok);
  EXPECT_EQ(set(b, request(of_b, 1, LockType::write, 10, 19)), Errc::would_block);
  EXPECT_EQ(set(b, other), Errc::would_block);
  a.vfs().release(a.caller(), of_a);  // The last close, of a process that was killed.
  EXPECT_EQ(set(b, request(of_b, 1, LockType::write, 10, 19)), Errc::ok);
  EXPECT_EQ(set(b, other), Errc::ok);
}

TEST_F(LockTest, WhoWaitsGetsItWhenTheOtherHostUnlocks) {
  EXPECT_EQ(set(a, request(of_a, 1, LockType::write)), Errc::ok);
  auto first = await(b, request(of_b, 1, LockType::write, 0, 9));
  auto second = await(b, request(of_b, 2, LockType::read, 20, 29));
  EXPECT_TRUE(waits(first));
  EXPECT_EQ(set(a, request(of_a, 1, LockType::unlock, 20, 29)), Errc::ok);
  EXPECT_EQ(soon(second), Errc::ok);
  EXPECT_TRUE(waits(first));
  ASSERT_TRUE(a.close(of_a).ok());
  EXPECT_EQ(soon(first), Errc::ok);
}

TEST_F(LockTest, ASignalEndsAWaitAndTheServerForgetsIt) {
  EXPECT_EQ(set(a, request(of_a, 1, LockType::write, 0, 0)), Errc::ok);
  EXPECT_EQ(set(b, request(of_b, 2, LockType::write, 1, 1)), Errc::ok);
  std::uint64_t unique = 0;
  auto waiting = await(b, request(of_b, 2, LockType::write, 0, 0), &unique);
  auto circle = await(a, request(of_a, 1, LockType::write, 1, 1));
  EXPECT_EQ(soon(circle), Errc::deadlock);
  EXPECT_TRUE(waits(waiting));
  b.vfs().interrupt(unique);
  EXPECT_EQ(soon(waiting), Errc::interrupted);
  auto straight = await(a, request(of_a, 1, LockType::write, 1, 1));
  EXPECT_TRUE(waits(straight));
  EXPECT_EQ(set(b, request(of_b, 2, LockType::unlock)), Errc::ok);
  EXPECT_EQ(soon(straight), Errc::ok);
}

TEST_F(LockTest, ASignalEndsAWaitWhileTheServerIsAway) {
  EXPECT_EQ(set(a, request(of_a, 1, LockType::write)), Errc::ok);
  std::uint64_t one = 0, two = 0;
  auto first = await(b, request(of_b, 1, LockType::write), &one);
  auto second = await(b, request(of_b, 2, LockType::write), &two);
  b.meta.away(true);
  b.vfs().interrupt(two);
  EXPECT_EQ(soon(second), Errc::interrupted);
  EXPECT_EQ(set(a, request(of_a, 1, LockType::unlock)), Errc::ok);
  EXPECT_TRUE(waits(first));
  b.meta.away(false);
  EXPECT_EQ(soon(first), Errc::ok);
}

TEST_F(LockTest, StoppingAnswersWhoWaits) {
  EXPECT_EQ(set(a, request(of_a, 1, LockType::write)), Errc::ok);
  auto waiting = await(b, request(of_b, 1, LockType::write));
  EXPECT_TRUE(waits(waiting));
  EXPECT_TRUE(b.stop().ok());
  EXPECT_EQ(soon(waiting), Errc::interrupted);
}

TEST_F(LockTest, UnderALockOneSeesWhatOthersWroteUnderTheirs) {
  const Node node = *b.walk("/volumes/v/f");
  ASSERT_EQ(*b.pread(of_b, 0, 100), "bytes");
  for (int round = 0; round < 10; ++round) {
    Host& writer = round % 2 == 0 ? a : b;
    Host& reader = round % 2 == 0 ? b : a;
    const std::uint64_t out = round % 2 == 0 ? of_a : of_b, in = round % 2 == 0 ? of_b : of_a;
    const std::string bytes(static_cast<std::size_t>(5 + round), static_cast<char>('a' + round));
    ASSERT_EQ(set(writer, request(out, 1, LockType::write)), Errc::ok);
    ASSERT_TRUE(writer.pwrite(out, 0, bytes).ok());
    ASSERT_EQ(set(writer, request(out, 1, LockType::unlock)), Errc::ok);
    const int told = reader.notices.of(node);
    ASSERT_EQ(set(reader, request(in, 1, LockType::read)), Errc::ok);
    EXPECT_EQ(reader.pread(in, 0, 100).value(), bytes) << round;
    EXPECT_GT(reader.notices.of(node), told) << round;
    EXPECT_EQ(reader.vfs().get_attributes(reader.caller(), node, in)->stat.length, bytes.size());
    ASSERT_EQ(set(reader, request(in, 1, LockType::unlock)), Errc::ok);
    const int before = reader.notices.of(node);
    ASSERT_EQ(set(reader, request(in, 1, LockType::read)), Errc::ok);
    EXPECT_EQ(reader.notices.of(node), before) << "nothing changed: the kernel keeps its pages";
    ASSERT_EQ(set(reader, request(in, 1, LockType::unlock)), Errc::ok);
  }
}

TEST_F(LockTest, ALostLockIsTold) {
  EXPECT_EQ(set(a, request(of_a, 1, LockType::write)), Errc::ok);
  const std::uint64_t bystander = *a.open("/volumes/v/f", O_RDONLY);
  cluster.end_session(a.sessions().id());
  EXPECT_EQ(set(b, request(of_b, 1, LockType::write)), Errc::ok);
  while (a.vfs().read(a.caller(), of_a, 0, 1).ok()) a.beat();
  EXPECT_EQ(a.pread(of_a, 0, 1).code(), Errc::io);
  EXPECT_EQ(a.pwrite(of_a, 0, "x").code(), Errc::io);
  EXPECT_EQ(set(a, request(of_a, 1, LockType::write, 5, 6)), Errc::no_locks);
  EXPECT_TRUE(a.pread(bystander, 0, 1).ok());
  EXPECT_EQ(set(a, request(of_a, 1, LockType::unlock)), Errc::ok);
  EXPECT_TRUE(a.pread(of_a, 0, 1).ok());
  EXPECT_EQ(set(a, request(of_a, 1, LockType::write)), Errc::would_block);
  EXPECT_EQ(set(b, request(of_b, 1, LockType::unlock)), Errc::ok);
  EXPECT_EQ(set(a, request(of_a, 1, LockType::write)), Errc::ok);
}

TEST_F(LockTest, ALossThatTheNextLockFindsIsTold) {
  EXPECT_EQ(set(a, request(of_a, 1, LockType::write, 0, 9)), Errc::ok);
  cluster.end_session(a.sessions().id());
  EXPECT_EQ(set(a, request(of_a, 1, LockType::write, 10, 19)), Errc::no_locks);
  EXPECT_EQ(set(b, request(of_b, 1, LockType::write)), Errc::ok);  // Nothing of it is left behind.
}

TEST_F(LockTest, WhoWaitsWaitsOnInANewSession) {
  EXPECT_EQ(set(a, request(of_a, 1, LockType::write)), Errc::ok);
  auto waiting = await(b, request(of_b, 1, LockType::write));
  cluster.end_session(b.sessions().id());
  EXPECT_TRUE(waits(waiting));
  EXPECT_EQ(set(a, request(of_a, 1, LockType::unlock)), Errc::ok);
  EXPECT_EQ(soon(waiting), Errc::ok);
  EXPECT_EQ(set(a, request(of_a, 1, LockType::write)), Errc::would_block);
}

TEST_F(LockTest, LostCallsAndAnswersChangeNothing) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  a.meta.lose(seed, 4);
  b.meta.lose(seed + 1, 4);
  Rng rng(seed);
  int held_by = 0;  // 0: nobody
  for (int step = 0; step < 300; ++step) {
    const int who = rng.one_in(2) ? 1 : 2;
    Host& host = who == 1 ? a : b;
    const bool locks = rng.one_in(2);
    const Errc expected = locks && held_by == 3 - who ? Errc::would_block : Errc::ok;
    ASSERT_EQ(
        set(host, request(who == 1 ? of_a : of_b, 1, locks ? LockType::write : LockType::unlock)),
        expected)
        << "step " << step;
    if (locks && held_by == 0) held_by = who;
    if (!locks && held_by == who) held_by = 0;
  }
}

}  // namespace
}  // namespace starlane::client::testing
