// The part of the conformance suite in which another process works on the engine and is killed: the
// test program starts itself again with the one test that is the child's work.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <thread>

#include "kv/conformance.h"

namespace starlane::kv {
namespace {

constexpr int kReportFd = 3;
constexpr int kThreads = 4;

struct Report {
  std::uint32_t thread = 0;
  std::uint32_t number = 0;
};

std::string row_name(std::uint32_t thread, std::uint32_t number) {
  return "row/" + std::to_string(thread) + "/" + std::to_string(number);
}

void commit_for_ever(Engine& engine, std::uint32_t thread, Durability durability) {
  for (std::uint32_t number = 1;; ++number) {
    const auto t = engine.begin();
    t->guard("head");
    t->put(row_name(thread, number), std::string(100, 'x'));
    t->put("last/" + std::to_string(thread), std::to_string(number));
    t->add("count", 1);
    if (!t->commit(durability).ok()) ::_exit(3);
    const Report report{thread, number};
    if (::write(kReportFd, &report, sizeof report) != sizeof report) ::_exit(4);
  }
}

/// The child's work: never returns.
TEST_P(EngineKill, DISABLED_Child) {
  const char* place = std::getenv("SL_KV_CHILD");
  if (place == nullptr) GTEST_SKIP() << "started by the kill tests only";
  auto engine = GetParam().open(place);
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  const auto durability = std::getenv("SL_KV_DURABLE") ? Durability::durable : Durability::ordered;
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] { commit_for_ever(**engine, i, durability); });
  for (std::thread& thread : threads) thread.join();
}

[[noreturn]] void become_child(const SubjectKind& kind, const std::string& place,
                               Durability durability, int report) {
  const std::string filter = "--gtest_filter=*EngineKill.DISABLED_Child/" + kind.name;
  ::setenv("SL_KV_CHILD", place.c_str(), 1);
  if (durability == Durability::durable) ::setenv("SL_KV_DURABLE", "1", 1);
  ::dup2(::open("/dev/null", O_WRONLY), STDOUT_FILENO);
  ::dup2(report, kReportFd);
  ::execl("/proc/self/exe", "kv_test", "--gtest_also_run_disabled_tests", filter.c_str(),
          static_cast<char*>(nullptr));
  ::_exit(127);
}

/// Starts the child, kills it after `acknowledged` reports and returns the last number each thread
/// reported.
std::map<std::uint32_t, std::uint32_t> run_and_kill(const SubjectKind& kind,
                                                    const std::string& place, Durability durability,
                                                    int acknowledged) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) become_child(kind, place, durability, ends[1]);
  ::close(ends[1]);
  std::map<std::uint32_t, std::uint32_t> last;
  Report report;
  for (int n = 0; ::read(ends[0], &report, sizeof report) == sizeof report;) {
    last[report.thread] = report.number;
    if (++n == acknowledged) ::kill(child, SIGKILL);
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  return last;
}

/// Every row that was reported is there, no commit is there in part; returns the number of commits.
std::int64_t check_rows(Engine& engine, const std::map<std::uint32_t, std::uint32_t>& reported) {
  const auto t = engine.begin();
  std::int64_t sum = 0;
  for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
    const auto last = t->get("last/" + std::to_string(thread)).value();
    const std::uint32_t kept = last ? static_cast<std::uint32_t>(std::stoul(last->value)) : 0;
    const auto said = reported.find(thread);
    EXPECT_GE(kept, said == reported.end() ? 0 : said->second) << "thread " << thread;
    for (std::uint32_t number = 1; number <= kept; ++number)
      EXPECT_TRUE(t->get(row_name(thread, number)).value()) << row_name(thread, number);
    EXPECT_FALSE(t->get(row_name(thread, kept + 1)).value());
    sum += kept;
  }
  EXPECT_EQ(t->total("count").value(), sum);
  return sum;
}

TEST_P(EngineKill, EveryAcknowledgedCommitSurvivesKill9) {
  const SubjectKind& kind = GetParam();
  for (const auto durability : {Durability::ordered, Durability::durable})
    for (const int acknowledged : {1, 700, 3000}) {
      const std::string place = kind.new_place();
      const auto reported = run_and_kill(kind, place, durability, acknowledged);
      EXPECT_FALSE(reported.empty());
      {
        auto engine = kind.open(place);
        ASSERT_TRUE(engine.ok()) << engine.status().to_string();
        EXPECT_GE(check_rows(**engine, reported), acknowledged);
      }
      kind.remove(place);
    }
}

}  // namespace
}  // namespace starlane::kv
