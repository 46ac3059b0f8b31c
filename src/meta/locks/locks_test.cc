#include <gtest/gtest.h>

#include <array>
#include <map>
#include <thread>

#include "common/rng.h"
#include "meta/locks/lock_list.h"
#include "meta/locks/lock_waits.h"
#include "meta/members/fixture.h"

namespace starlane::meta {
namespace {

FileLock lock_of(std::uint64_t owner, LockType type, std::uint64_t start, std::uint64_t end) {
  FileLock lock;
  lock.of = {SessionId{1}, owner};
  lock.type = type;
  lock.start = start;
  lock.end = end;
  return lock;
}

TEST(LockList, SplitsJoinsAndConverts) {
  std::vector<FileLock> locks;
  set_range(locks, lock_of(1, LockType::write, 0, 99));
  set_range(locks, lock_of(1, LockType::read, 40, 59));
  ASSERT_EQ(locks.size(), 3u);
  EXPECT_EQ(locks[0], lock_of(1, LockType::write, 0, 39));
  EXPECT_EQ(locks[1], lock_of(1, LockType::read, 40, 59));
  EXPECT_EQ(locks[2], lock_of(1, LockType::write, 60, 99));
  set_range(locks, lock_of(1, LockType::write, 40, 59));
  EXPECT_EQ(locks, std::vector<FileLock>{lock_of(1, LockType::write, 0, 99)});
  set_range(locks, lock_of(1, LockType::unlock, 10, kLockToEnd));
  EXPECT_EQ(locks, std::vector<FileLock>{lock_of(1, LockType::write, 0, 9)});
  set_range(locks, lock_of(1, LockType::write, 10, 10));  // Beside it: one lock.
  EXPECT_EQ(locks, std::vector<FileLock>{lock_of(1, LockType::write, 0, 10)});
  set_range(locks, lock_of(1, LockType::unlock, 0, kLockToEnd));
  EXPECT_TRUE(locks.empty());
}

TEST(LockList, AgreesWithAModelOfBytes) {
  constexpr std::size_t kBytes = 24;  // the last one stands for all that follow
  constexpr std::uint64_t kOwners = 4;
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed);
  using Bytes = std::array<int, kBytes>;  // of one owner: 0 none, 1 read, 2 write
  std::map<std::uint64_t, Bytes> model;
  std::vector<FileLock> locks;
  for (int step = 0; step < 20'000; ++step) {
    const std::uint64_t owner = 1 + rng.below(kOwners);
    const auto type = static_cast<LockType>(rng.below(3));
    const std::uint64_t start = rng.below(kBytes);
    const std::size_t last = rng.one_in(4) ? kBytes - 1 : start + rng.below(kBytes - start);
    const std::uint64_t end = last == kBytes - 1 ? kLockToEnd : last;
    bool free = true;
    for (const auto& [other, bytes] : model)
      for (std::size_t at = start; at <= last; ++at)
        free = free && (other == owner || type == LockType::unlock || bytes[at] == 0 ||
                        (bytes[at] == 1 && type == LockType::read));
    const FileLock wanted = lock_of(owner, type, start, end);
    ASSERT_EQ(conflicts_of(locks, wanted).empty(), free) << "step " << step;
    if (!free) continue;
    set_range(locks, wanted);
    for (std::size_t at = start; at <= last; ++at)
      model[owner][at] = type == LockType::unlock ? 0 : type == LockType::read ? 1 : 2;
    std::map<std::uint64_t, Bytes> found;
    for (const FileLock& lock : locks)
      for (std::size_t at = lock.start; at <= std::min<std::uint64_t>(lock.end, kBytes - 1); ++at) {
        ASSERT_EQ(found[lock.of.owner][at], 0) << "two locks of one owner overlap";
        found[lock.of.owner][at] = lock.type == LockType::read ? 1 : 2;
      }
    for (const auto& [other, bytes] : model) ASSERT_EQ(found[other], bytes) << "step " << step;
    for (std::size_t i = 1; i < locks.size(); ++i)
      ASSERT_FALSE(locks[i - 1].same_owner(locks[i]) && locks[i - 1].type == locks[i].type &&
                   locks[i - 1].end + 1 == locks[i].start)
          << "not joined";
  }
}

TEST(LockRow, GoldenBytesAndWhatIsRefused) {
  LockRow row;
  row.header.epoch = 2;
  FileLock lock = lock_of(5, LockType::write, 6, 7);
  lock.of.session = SessionId{3};
  lock.attachment_epoch = 4;
  lock.pid = 8;
  lock.kind = LockKind::flock;
  row.locks.push_back(lock);
  const std::string bytes = row.encode();
  const auto u64 = [](char c) { return std::string(1, c) + std::string(7, '\0'); };
  const std::string golden = std::string("\x01\x00", 2) + u64(2) + std::string("\x01\0\0\0", 4) +
                             u64(3) + u64(4) + u64(5) + u64(6) + u64(7) +
                             std::string("\x08\0\0\0\x01\x01", 6);
  EXPECT_EQ(bytes, golden);
  EXPECT_EQ(bytes.size(), kRowHeaderSize + 4 + kFileLockSize);
  ASSERT_TRUE(LockRow::decode(bytes).ok());
  EXPECT_EQ(LockRow::decode(bytes)->locks, row.locks);
  EXPECT_EQ(LockRow::decode(bytes.substr(1)).code(), Errc::corrupt);
  EXPECT_EQ(LockRow::decode(bytes + "x").code(), Errc::corrupt);
  std::string wrong = bytes;
  wrong.back() = 2;  // of type unlock
  EXPECT_EQ(LockRow::decode(wrong).code(), Errc::corrupt);
}

// ---- Over the server ----

struct Locker : Client {
  using Client::Client;

  pb::LockRequest request(std::uint64_t inode, std::uint64_t owner, pb::FileLock::Type type,
                          std::uint64_t start = 0, std::uint64_t end = kLockToEnd) {
    pb::LockRequest request;
    fill(request.mutable_on());
    request.set_inode(inode);
    request.mutable_lock()->set_owner(owner);
    request.mutable_lock()->set_type(type);
    request.mutable_lock()->set_start(start);
    request.mutable_lock()->set_end(end);
    request.mutable_lock()->set_pid(static_cast<std::uint32_t>(owner + 1000));
    return request;
  }
  Errc lock(const pb::LockRequest& request) {
    const auto reply = site.ask(&MetaService::lock, request, session);
    if (!reply.ok()) return reply.code();
    return reply->granted() ? Errc::ok : Errc::would_block;
  }
  Errc lock(std::uint64_t inode, std::uint64_t owner, pb::FileLock::Type type,
            std::uint64_t start = 0, std::uint64_t end = kLockToEnd) {
    return lock(request(inode, owner, type, start, end));
  }
  Errc wait(std::uint64_t inode, std::uint64_t owner, std::uint64_t number) {
    pb::LockRequest waiting = request(inode, owner, pb::FileLock::WRITE);
    waiting.set_wait(number);
    return lock(waiting);
  }
  Errc flock(std::uint64_t inode, std::uint64_t owner, pb::FileLock::Type type) {
    pb::LockRequest whole = request(inode, owner, type);
    whole.mutable_lock()->set_kind(pb::FileLock::FLOCK);
    return lock(whole);
  }
  /// True: it was told before the deadline.
  bool told(Milliseconds patience) {
    pb::SessionRequest request;
    request.set_session(session.value);
    Call call;
    call.deadline = Deadline::after(patience * 2);
    pb::Empty reply;
    const Nanoseconds before = system_clock().boot();
    EXPECT_TRUE(site.server.await_locks(call, request, &reply).ok());
    return system_clock().boot() - before < patience;
  }
};

class Locks : public ::testing::Test {
 protected:
  Locks() {
    EXPECT_TRUE(site_.create_volume("v").ok());
    EXPECT_TRUE(a_.attach("v").ok());
    while (!b_.attach("v").ok()) EXPECT_TRUE(a_.release_lease().ok());
    file_ = a_.create(1, "file").value();
    other_ = a_.create(1, "other").value();
  }
  Site site_;
  Locker a_{site_, "a"};
  Locker b_{site_, "b"};
  std::uint64_t file_ = 0, other_ = 0;
};

TEST_F(Locks, OfTwoSessionsMeetAndOfOneOwnerDoNot) {
  EXPECT_EQ(a_.lock(file_, 7, pb::FileLock::WRITE, 0, 9), Errc::ok);
  EXPECT_EQ(a_.lock(file_, 7, pb::FileLock::READ, 5, 20), Errc::ok);
  EXPECT_EQ(b_.lock(file_, 7, pb::FileLock::READ, 0, 0), Errc::would_block);  // Another's 7.
  EXPECT_EQ(b_.lock(file_, 7, pb::FileLock::READ, 5, 30), Errc::ok);
  EXPECT_EQ(a_.lock(file_, 7, pb::FileLock::WRITE, 20, 20), Errc::would_block);
  EXPECT_EQ(b_.flock(file_, 7, pb::FileLock::WRITE), Errc::ok);
  EXPECT_EQ(b_.lock(other_, 7, pb::FileLock::WRITE), Errc::ok);

  const auto test = site_.ask(&MetaService::test_lock, b_.request(file_, 9, pb::FileLock::WRITE));
  ASSERT_TRUE(test.ok());
  EXPECT_EQ(test->conflict().pid(), 1007u);
  EXPECT_EQ(test->conflict().start(), 0u);
  EXPECT_EQ(test->conflict().end(), 4u);
  EXPECT_EQ(test->conflict().type(), pb::FileLock::WRITE);

  EXPECT_EQ(a_.lock(file_, 7, pb::FileLock::UNLOCK), Errc::ok);
  EXPECT_EQ(b_.lock(file_, 7, pb::FileLock::UNLOCK), Errc::ok);
  EXPECT_EQ(b_.flock(file_, 7, pb::FileLock::UNLOCK), Errc::ok);
  EXPECT_EQ(b_.lock(other_, 7, pb::FileLock::UNLOCK), Errc::ok);
  EXPECT_TRUE(site_.rows(a_.branch, Table::lock).empty());
}

TEST_F(Locks, AFlockThatCannotBeConvertedIsLost) {
  EXPECT_EQ(a_.flock(file_, 1, pb::FileLock::READ), Errc::ok);
  EXPECT_EQ(b_.flock(file_, 2, pb::FileLock::READ), Errc::ok);
  EXPECT_EQ(a_.flock(file_, 1, pb::FileLock::WRITE), Errc::would_block);
  EXPECT_EQ(b_.flock(file_, 2, pb::FileLock::WRITE), Errc::ok);
}

TEST_F(Locks, EndWithTheirSessionAndAttachment) {
  EXPECT_EQ(a_.lock(file_, 1, pb::FileLock::WRITE), Errc::ok);
  EXPECT_EQ(a_.lock(other_, 1, pb::FileLock::WRITE), Errc::ok);
  EXPECT_EQ(b_.lock(file_, 1, pb::FileLock::WRITE), Errc::would_block);
  EXPECT_TRUE(site_.close_session(a_.session).ok());
  EXPECT_EQ(a_.lock(file_, 1, pb::FileLock::READ), Errc::fenced);
  EXPECT_EQ(b_.lock(file_, 1, pb::FileLock::WRITE), Errc::ok);
  EXPECT_EQ(site_.rows(b_.branch, Table::lock).size(), 2u);
  site_.keep_all_house();
  EXPECT_EQ(site_.rows(b_.branch, Table::lock).size(), 1u);

  EXPECT_TRUE(b_.detach().ok());
  EXPECT_TRUE(b_.attach("v").ok());
  Locker c(site_, "c");
  while (!c.attach("v").ok()) EXPECT_TRUE(b_.release_lease().ok());
  EXPECT_EQ(c.lock(file_, 1, pb::FileLock::WRITE), Errc::ok);
}

TEST_F(Locks, GoOnWhenAnotherProcessOfTheSessionTakesOver) {
  EXPECT_EQ(a_.lock(file_, 1, pb::FileLock::WRITE, 0, 9), Errc::ok);
  const std::uint64_t first = a_.epoch;
  pb::AttachRequest request;
  request.set_session(a_.session.value);
  request.set_volume("v");
  request.set_take_over(true);
  for (int times = 0; times < 2; ++times) {
    const auto taken = site_.ask(&MetaService::attach, request, a_.session);
    ASSERT_TRUE(taken.ok());
    EXPECT_NE(taken->attachment_epoch(), a_.epoch);
    EXPECT_EQ(taken->first_epoch(), first);
    EXPECT_EQ(a_.lock(file_, 1, pb::FileLock::UNLOCK), Errc::fenced);  // The process before.
    a_.epoch = taken->attachment_epoch();
    EXPECT_EQ(b_.lock(file_, 1, pb::FileLock::WRITE, 5, 5), Errc::would_block);
    EXPECT_EQ(a_.lock(file_, 1, pb::FileLock::WRITE, 10, 19),
              Errc::ok);  // Joined with the old one.
  }
  EXPECT_EQ(a_.lock(file_, 1, pb::FileLock::UNLOCK), Errc::ok);
  EXPECT_TRUE(site_.rows(a_.branch, Table::lock).empty());
}

TEST_F(Locks, SilentSessionLosesThem) {
  EXPECT_EQ(a_.lock(file_, 1, pb::FileLock::WRITE), Errc::ok);
  site_.keep_all_house();
  site_.clock.advance(site_.lease / 2);
  ASSERT_TRUE(b_.beat().ok());
  site_.keep_all_house();
  EXPECT_EQ(b_.lock(file_, 1, pb::FileLock::WRITE), Errc::would_block);
  site_.clock.advance(site_.lease / 2 + Milliseconds(1));
  ASSERT_TRUE(b_.beat().ok());
  EXPECT_EQ(site_.keep_all_house().expired_sessions(), 1u);
  EXPECT_EQ(b_.lock(file_, 1, pb::FileLock::WRITE), Errc::ok);
}

TEST_F(Locks, SurviveTheServer) {
  EXPECT_EQ(a_.lock(file_, 1, pb::FileLock::WRITE), Errc::ok);
  Server next(site_.engine, site_.clock, {});
  pb::LockReply reply;
  EXPECT_EQ(next.lock({}, b_.request(file_, 1, pb::FileLock::READ), &reply).code(),
            Errc::would_block);
  EXPECT_TRUE(next.lock({}, a_.request(file_, 1, pb::FileLock::UNLOCK), &reply).ok());
  EXPECT_TRUE(next.lock({}, b_.request(file_, 1, pb::FileLock::READ), &reply).ok());
}

TEST_F(Locks, ARepeatedCallIsAnsweredOnce) {
  pb::LockRequest lock = a_.request(file_, 1, pb::FileLock::WRITE);
  lock.mutable_on()->set_request(77);
  EXPECT_EQ(a_.lock(lock), Errc::ok);
  EXPECT_EQ(a_.lock(file_, 1, pb::FileLock::UNLOCK), Errc::ok);
  EXPECT_EQ(a_.lock(lock), Errc::ok);  // The answer of then: nothing is locked by it.
  EXPECT_EQ(b_.lock(file_, 1, pb::FileLock::WRITE), Errc::ok);
}

TEST_F(Locks, AreOfNoVolumeThatIsReadOnlyOnlyInName) {
  Locker c(site_, "c");
  ASSERT_TRUE(c.attach("v", /*read_only=*/true).ok());
  EXPECT_EQ(c.lock(file_, 1, pb::FileLock::READ), Errc::ok);
  EXPECT_EQ(a_.lock(file_, 1, pb::FileLock::WRITE), Errc::would_block);
}

TEST_F(Locks, HaveLimitsAndRefuseNonsense) {
  LockRow row;
  for (std::uint64_t i = 1; i < kMaxLocksOfFile; ++i) {
    row.locks.push_back(lock_of(1, LockType::write, 2 * i, 2 * i));
    row.locks.back().of.session = a_.session;
    row.locks.back().attachment_epoch = a_.epoch;
  }
  site_.edit([&](kv::Transaction& t) -> Status {
    t.put(lock_key(a_.branch, InodeId{file_}), row.encode());
    return {};
  });
  EXPECT_EQ(a_.lock(file_, 1, pb::FileLock::WRITE, 0, 0), Errc::ok);
  EXPECT_EQ(a_.lock(file_, 1, pb::FileLock::WRITE, 1 << 20, 1 << 20), Errc::no_locks);
  EXPECT_EQ(a_.lock(file_, 1, pb::FileLock::UNLOCK, 0, 3), Errc::ok);
  EXPECT_EQ(a_.lock(file_, 1, pb::FileLock::WRITE, 1 << 20, 1 << 20), Errc::ok);
  EXPECT_EQ(a_.lock(file_, 1, pb::FileLock::WRITE, 0, kLockToEnd), Errc::ok);  // All one.
  EXPECT_EQ(a_.lock(file_, 1, pb::FileLock::WRITE, 5, 4), Errc::invalid);
  EXPECT_EQ(a_.lock(file_, 1, pb::FileLock::WRITE, 0, kLockToEnd + 1), Errc::invalid);
  EXPECT_EQ(a_.lock(12345, 1, pb::FileLock::WRITE), Errc::not_found);
  pb::LockRequest nobody = a_.request(file_, 1, pb::FileLock::WRITE);
  nobody.mutable_on()->set_attachment_epoch(0);
  EXPECT_EQ(a_.lock(nobody), Errc::invalid);
  pb::LockRequest strange = a_.request(file_, 1, pb::FileLock::WRITE);
  strange.mutable_lock()->set_type(static_cast<pb::FileLock::Type>(9));
  EXPECT_EQ(a_.lock(strange), Errc::invalid);
}

TEST_F(Locks, WhoWaitsIsToldOfUnlockAndOfTheEndOfASession) {
  EXPECT_EQ(a_.lock(file_, 1, pb::FileLock::WRITE), Errc::ok);
  EXPECT_EQ(b_.wait(file_, 1, 5), Errc::would_block);
  EXPECT_FALSE(b_.told(Milliseconds(20)));
  EXPECT_EQ(a_.lock(other_, 1, pb::FileLock::WRITE), Errc::ok);
  EXPECT_EQ(a_.lock(other_, 1, pb::FileLock::UNLOCK), Errc::ok);
  EXPECT_FALSE(b_.told(Milliseconds(20)));  // Another file's.
  std::thread unlocks([&] { EXPECT_EQ(a_.lock(file_, 1, pb::FileLock::UNLOCK), Errc::ok); });
  EXPECT_TRUE(b_.told(Milliseconds(900)));
  unlocks.join();
  EXPECT_EQ(b_.wait(file_, 1, 5), Errc::ok);

  EXPECT_EQ(a_.wait(file_, 1, 6), Errc::would_block);
  EXPECT_TRUE(site_.close_session(b_.session).ok());
  EXPECT_TRUE(a_.told(Milliseconds(900)));
  EXPECT_EQ(a_.wait(file_, 1, 6), Errc::ok);
}

TEST_F(Locks, ACircleIsToldAndOnlyWhileItIsOne) {
  EXPECT_EQ(a_.lock(file_, 1, pb::FileLock::WRITE), Errc::ok);
  EXPECT_EQ(b_.lock(other_, 2, pb::FileLock::WRITE), Errc::ok);
  EXPECT_EQ(a_.wait(other_, 1, 1), Errc::would_block);
  EXPECT_EQ(b_.wait(file_, 2, 1), Errc::deadlock);
  // Who gave up waits for nobody.
  pb::StopWaitingRequest stop;
  stop.set_session(a_.session.value);
  stop.set_owner(1);
  stop.set_wait(1);
  ASSERT_TRUE(site_.ask(&MetaService::stop_waiting, stop).ok());
  EXPECT_EQ(b_.wait(file_, 2, 1), Errc::would_block);
  EXPECT_EQ(a_.wait(other_, 1, 2), Errc::deadlock);
  // Nor who would find it free if they looked again.
  EXPECT_EQ(a_.lock(file_, 1, pb::FileLock::UNLOCK), Errc::ok);
  EXPECT_EQ(a_.wait(other_, 1, 3), Errc::would_block);
}

TEST_F(Locks, ACircleOfThree) {
  const std::uint64_t third = a_.create(1, "third").value();
  EXPECT_EQ(a_.lock(file_, 1, pb::FileLock::WRITE), Errc::ok);
  EXPECT_EQ(a_.lock(other_, 2, pb::FileLock::WRITE), Errc::ok);
  EXPECT_EQ(b_.lock(third, 3, pb::FileLock::WRITE), Errc::ok);
  EXPECT_EQ(a_.wait(other_, 1, 1), Errc::would_block);
  EXPECT_EQ(a_.wait(third, 2, 1), Errc::would_block);
  EXPECT_EQ(b_.wait(file_, 3, 1), Errc::deadlock);
}

// Threads of one process, each with its own open file (OFD): who waits is not who holds.
TEST_F(Locks, ACircleWithinAProcessIsNone) {
  EXPECT_EQ(a_.lock(file_, 1, pb::FileLock::WRITE), Errc::ok);
  EXPECT_EQ(a_.lock(other_, 2, pb::FileLock::WRITE), Errc::ok);
  const auto wait = [&](std::uint64_t inode, std::uint64_t owner) {
    pb::LockRequest waiting = a_.request(inode, owner, pb::FileLock::WRITE);
    waiting.set_wait(1);
    waiting.mutable_lock()->set_pid(77);
    return a_.lock(waiting);
  };
  EXPECT_EQ(wait(other_, 1), Errc::would_block);
  EXPECT_EQ(wait(file_, 2), Errc::would_block);
  EXPECT_EQ(a_.lock(other_, 2, pb::FileLock::UNLOCK), Errc::ok);
  EXPECT_EQ(wait(other_, 1), Errc::ok);
}

}  // namespace
}  // namespace starlane::meta
