#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <thread>

#include "common/batch.h"
#include "common/budget.h"
#include "common/bulk.h"
#include "common/errno.h"
#include "common/rng.h"
#include "common/thread_pool.h"

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
  MemorySink sink(buffer);
  EXPECT_TRUE(sink.write(bytes_of("abc")).ok());
  EXPECT_EQ(sink.write(bytes_of("de")).code(), Errc::invalid);
  EXPECT_EQ(text_of(ByteSpan(buffer).first(3)), "abc");
}

}  // namespace
}  // namespace starlane
