#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <thread>

#include "common/batch.h"
#include "common/budget.h"
#include "common/bulk.h"
#include "common/errno.h"
#include "common/process_id.h"
#include "common/rng.h"
#include "common/thread_pool.h"
#include "common/trace.h"

namespace starlane {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return Status(Errc::invalid, "odd");
  return n / 2;
}
Result<int> quarter(int n) {
  const int once = SL_TRY(half(n));
  return SL_TRY(half(once));
}

TEST(Status, TryPassesValuesAndFailures) {
  EXPECT_EQ(quarter(12).value(), 3);
  EXPECT_EQ(quarter(6).code(), Errc::invalid);
  EXPECT_EQ(quarter(6).status().with("quarter").to_string(), "invalid: quarter: odd");
}

TEST(Errno, RoundTripsEveryErrnoOfTheTable) {
  for (int number : {ENOENT, EEXIST,  ENOTDIR, EISDIR,       ENOTEMPTY, ENOSPC,  EDQUOT, EROFS,
                     EACCES, EPERM,   EINVAL,  ENAMETOOLONG, EMLINK,    EXDEV,   EFBIG,  EOPNOTSUPP,
                     ENOSYS, ENODATA, ERANGE,  ESTALE,       EBADF,     ETXTBSY, ELOOP,  EINTR,
                     E2BIG,  ENXIO,   EAGAIN,  ENOMEM,       EIO})
    EXPECT_EQ(errno_of(errc_of(number)), number) << number;
  EXPECT_EQ(errc_of(ENOTSOCK), Errc::io);
}

TEST(Rng, SequenceIsOursAndFixed) {
  Rng rng(1);
  const std::uint64_t first = rng.next();
  EXPECT_EQ(first, Rng(1).next());
  EXPECT_EQ(first, 0xb3f2af6d0fc710c5ULL);
}

TEST(Batch, ReturnsTheFirstFailureAfterAllAreDone) {
  ThreadPool pool({.name = "test", .threads = 4, .queue_limit = 2});
  Batch batch;
  std::atomic<int> ran{0};
  batch.expect(100);
  for (int i = 0; i < 100; ++i)
    pool.submit([&, i] {
      ++ran;
      batch.done(i == 50 ? Status(Errc::io, "fifty") : Status());
    });
  EXPECT_EQ(batch.wait().text(), "fifty");
  EXPECT_EQ(ran, 100);
  EXPECT_TRUE(batch.wait().ok());
}

TEST(Trace, FollowsWorkIntoPoolsAndEndsWithItsScope) {
  ThreadPool pool({.name = "test", .threads = 2, .queue_limit = 64});
  Batch batch;
  std::array<std::atomic<std::uint64_t>, 50> seen{};
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const TraceScope scope(i);  // 0: nobody's, also after work that was somebody's
    batch.expect(1);
    pool.submit([&, i] {
      seen[i] = current_trace();
      batch.done({});
    });
  }
  EXPECT_TRUE(batch.wait().ok());
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], i);
  EXPECT_EQ(current_trace(), 0U);
  EXPECT_NE(make_trace(1), make_trace(2));
  EXPECT_EQ(make_trace(7) & 0xffff, 7U);
  EXPECT_NE(make_trace(7) >> 48, 0U);
}

TEST(ProcessId, IsOverWhenItIs) {
  EXPECT_FALSE(is_over(this_process()));
  int told[2];
  ASSERT_EQ(::pipe(told), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::uint64_t started = this_process().started;
    if (::write(told[1], &started, sizeof started) != sizeof started) ::_exit(1);
    ::pause();
  }
  ProcessId process = this_process();
  process.pid = static_cast<std::uint64_t>(child);
  ASSERT_EQ(::read(told[0], &process.started, sizeof process.started),
            static_cast<ssize_t>(sizeof process.started));
  EXPECT_FALSE(is_over(process));
  ProcessId earlier = process;
  --earlier.started;
  EXPECT_TRUE(is_over(earlier)) << "its number was given again";
  ::kill(child, SIGKILL);
  siginfo_t ended;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(is_over(process)) << "its parent has not heard of it yet";
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(is_over(process));
  process.space = "elsewhere";
  EXPECT_FALSE(is_over(process));
  ::close(told[0]);
  ::close(told[1]);
}

TEST(ByteBudget, BlocksUntilGivenBackAndLetsOneGiantThrough) {
  ByteBudget budget(10);
  EXPECT_TRUE(budget.try_take(100));
  EXPECT_FALSE(budget.try_take(1));
  EXPECT_EQ(budget.take(1, Deadline::after(Milliseconds(5))).code(), Errc::timeout);
  std::thread giver([&] { budget.give(100); });
  EXPECT_TRUE(budget.take(10).ok());
  giver.join();
  EXPECT_EQ(budget.used(), 10U);
}

TEST(Bulk, MemoryEndsRefuseToRunOver) {
  std::array<std::byte, 4> buffer{};
  LandingSink sink(buffer);
  EXPECT_TRUE(sink.write(bytes_of("abc")).ok());
  EXPECT_EQ(sink.write(bytes_of("de")).code(), Errc::invalid);
  EXPECT_EQ(text_of(ByteSpan(buffer).first(3)), "abc");
}

}  // namespace
}  // namespace starlane
