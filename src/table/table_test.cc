#include "table/table.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "common/rng.h"

namespace starlane::table {
namespace {

class TableTest : public ::testing::Test {
 protected:
  TableTest() {
    char name[] = "/dev/shm/starlane-table-XXXXXX";
    directory_ = ::mkdtemp(name);
    options_.directory = directory_ + "/t";
    options_.cache_bytes = 1_MiB;
    options_.write_buffer_bytes = 1_MiB;
  }
  ~TableTest() override {
    table_.reset();
    std::filesystem::remove_all(directory_);
  }
  void reopen() {
    table_.reset();
    auto opened = Table::open(options_);
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    table_ = std::move(*opened);
  }
  void put(const std::string& key, const std::string& value) {
    WriteBatch batch;
    batch.put(key, value);
    ASSERT_TRUE(table_->write(batch).ok());
  }
  std::map<std::string, std::string> rows(const Range& range = {},
                                          const SnapshotPtr& snapshot = nullptr) {
    std::map<std::string, std::string> out;
    Iterator it = table_->iterate(range, snapshot);
    for (; it.valid(); it.next()) out.emplace(it.key(), it.value());
    EXPECT_TRUE(it.status().ok());
    return out;
  }

  std::string directory_;
  Options options_;
  std::unique_ptr<Table> table_;
};

TEST_F(TableTest, SaysWhatIsWrongWithADirectory) {
  options_.create = false;
  EXPECT_EQ(Table::open(options_).code(), Errc::not_found);
  options_.create = true;
  std::filesystem::create_directories(options_.directory);
  std::ofstream(options_.directory + "/holiday.jpg") << "x";
  const auto foreign = Table::open(options_);
  EXPECT_EQ(foreign.code(), Errc::invalid);
  EXPECT_NE(foreign.status().text().find("holiday.jpg"), std::string::npos);
  options_.directory += "/holiday.jpg";
  EXPECT_FALSE(Table::open(options_).ok());
  options_.directory.clear();
  EXPECT_EQ(Table::open(options_).code(), Errc::invalid);
}

TEST_F(TableTest, ASecondOpenIsBusyAndNamesTheDirectory) {
  reopen();
  const auto second = Table::open(options_);
  ASSERT_EQ(second.code(), Errc::busy);
  EXPECT_EQ(second.status().text(), options_.directory + " is in use by another process");
  reopen();  // Free again once closed.
}

TEST_F(TableTest, ASnapshotOutlivesTheTableObject) {
  reopen();
  put("a", "1");
  SnapshotPtr snapshot = table_->snapshot();
  table_.reset();
  EXPECT_EQ(Table::open(options_).code(), Errc::busy);
  snapshot.reset();
  reopen();
  EXPECT_EQ(rows(), (std::map<std::string, std::string>{{"a", "1"}}));
}

TEST_F(TableTest, DamageIsReportedAtOpen) {
  reopen();
  put("a", "1");
  table_.reset();
  std::ofstream(options_.directory + "/CURRENT") << "MANIFEST-9";
  const auto damaged = Table::open(options_);
  ASSERT_FALSE(damaged.ok());
  EXPECT_TRUE(damaged.code() == Errc::corrupt || damaged.code() == Errc::io)
      << damaged.status().to_string();
}

TEST_F(TableTest, ALateRowIsNotInASnapshotNorInItsIterator) {
  reopen();
  put("a", "1");
  const SnapshotPtr before = table_->snapshot();
  put("a", "2");
  put("b", "1");
  EXPECT_EQ(table_->get("a", before).value(), "1");
  EXPECT_EQ(table_->get("b", before).value(), std::nullopt);
  EXPECT_EQ(table_->get("a").value(), "2");
  EXPECT_EQ(rows({}, before), (std::map<std::string, std::string>{{"a", "1"}}));
  const auto many = table_->multi_get({"b", "x", "a", "a"});
  ASSERT_TRUE(many.ok());
  EXPECT_EQ(*many, (std::vector<std::optional<std::string>>{"1", std::nullopt, "2", "2"}));
}

TEST_F(TableTest, SyncsOnlyWithALog) {
  options_.log = false;
  reopen();
  WriteBatch batch;
  batch.put("a", "1");
  EXPECT_EQ(table_->write(batch, {.sync = true}).code(), Errc::invalid);
  EXPECT_EQ(table_->sync_log().code(), Errc::invalid);
  EXPECT_TRUE(table_->flush().ok());
}

using Model = std::map<std::string, std::string>;

/// One random batch, into both.
WriteBatch random_batch(Rng& rng, Model& model) {
  const auto key = [&] {
    return std::string(1 + rng.below(3), 'a') + std::to_string(rng.below(200));
  };
  WriteBatch batch;
  for (std::uint64_t i = 1 + rng.below(8); i > 0; --i) {
    const std::string k = key();
    if (rng.one_in(40)) {
      const std::string last = k + "5";
      batch.del_range(k, last);
      model.erase(model.lower_bound(k), model.lower_bound(last));
    } else if (rng.one_in(4)) {
      batch.del(k);
      model.erase(k);
    } else {
      const std::string value(rng.below(3000), static_cast<char>('a' + rng.below(26)));
      batch.put(k, value);
      model[k] = value;
    }
  }
  return batch;
}

TEST_F(TableTest, BehavesAsAMapThroughReopensFlushesAndMerges) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed);
  Model model;
  reopen();
  for (int step = 0; step < 4000; ++step) {
    ASSERT_TRUE(
        table_->write(random_batch(rng, model), {.sync = options_.log && rng.one_in(100)}).ok());
    if (rng.one_in(300)) {
      options_.log = rng.one_in(2);
      options_.compress = rng.one_in(2);
      options_.large_value_bytes = rng.one_in(2) ? 1000 : 0;
      reopen();
    }
    if (rng.one_in(300)) {
      ASSERT_TRUE(table_->flush().ok());
    }
    if (rng.one_in(1000)) {
      ASSERT_TRUE(table_->compact({}).ok());
    }
    if (!rng.one_in(50)) continue;
    const std::string first = "a" + std::to_string(rng.below(200));
    const std::string last = rng.one_in(3) ? "" : "aa" + std::to_string(rng.below(200));
    const Model want(model.lower_bound(first),
                     last.empty() ? model.end() : model.lower_bound(last));
    ASSERT_EQ(rows({first, last}), want);
  }
  EXPECT_EQ(rows(), model);
  EXPECT_GT(table_->bytes_on_device(), 0u);
}

TEST_F(TableTest, ApproximateBytesFollowTheRows) {
  options_.write_buffer_bytes = 48_MiB;
  reopen();
  for (int i = 0; i < 1000; ++i)
    put("k" + std::to_string(1000 + i), std::string(4096, static_cast<char>(i)));
  ASSERT_TRUE(table_->flush().ok());
  const std::uint64_t all = table_->approximate_bytes({});
  EXPECT_GT(all, 3_MiB);
  EXPECT_LT(table_->approximate_bytes({"k1000", "k1500"}), all * 3 / 4);
  EXPECT_LT(table_->approximate_bytes({"x", ""}), 1_MiB);
}

TEST_F(TableTest, ReadersSeeWholeBatches) {
  reopen();
  put("x", "0");
  put("y", "0");
  std::atomic<bool> stop{false};  // pairs with the writer's load
  std::thread writer([&] {
    for (int i = 1; !stop.load(); ++i) {
      WriteBatch batch;
      batch.put("x", std::to_string(i));
      batch.put("y", std::to_string(i));
      EXPECT_TRUE(table_->write(batch).ok());
    }
  });
  for (int i = 0; i < 2000; ++i) {
    const auto pair = table_->multi_get({"x", "y"}, table_->snapshot());
    ASSERT_TRUE(pair.ok());
    EXPECT_EQ((*pair)[0], (*pair)[1]);
  }
  stop = true;
  writer.join();
}

constexpr int kReportFd = 3;

/// The other side of the kill tests: writes numbered batches for ever and says each number once it
/// was written.
TEST(TableChild, DISABLED_WritesUntilKilled) {
  const char* directory = std::getenv("SL_TABLE_CHILD");
  if (directory == nullptr) GTEST_SKIP() << "started by the kill tests only";
  Options options;
  options.directory = directory;
  options.log = std::getenv("SL_TABLE_CHILD_LOG") != nullptr;
  options.write_buffer_bytes = 300_KiB;
  auto table = Table::open(options);
  ASSERT_TRUE(table.ok()) << table.status().to_string();
  for (std::uint32_t i = 1;; ++i) {
    WriteBatch batch;
    batch.put("last", std::to_string(i));
    batch.put("row" + std::to_string(i), std::string(200, 'x'));
    ASSERT_TRUE((*table)->write(batch).ok());
    if (i % 2000 == 0 && !options.log) {
      ASSERT_TRUE((*table)->flush().ok());
    }
    ASSERT_EQ(::write(kReportFd, &i, sizeof i), static_cast<ssize_t>(sizeof i));
  }
}

/// Starts the child above, kills it after `acknowledged` numbers and returns the last number it
/// said.
std::uint32_t run_until_killed(const std::string& directory, bool log, int acknowledged) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("SL_TABLE_CHILD", directory.c_str(), 1);
    if (log) ::setenv("SL_TABLE_CHILD_LOG", "1", 1);
    ::dup2(::open("/dev/null", O_WRONLY), STDOUT_FILENO);
    ::dup2(ends[1], kReportFd);
    ::execl("/proc/self/exe", "table_test", "--gtest_also_run_disabled_tests", "--gtest_brief=1",
            "--gtest_filter=TableChild.*", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ::close(ends[1]);
  std::uint32_t last = 0;
  for (std::uint32_t number; ::read(ends[0], &number, sizeof number) == sizeof number;
       last = number)
    if (number == static_cast<std::uint32_t>(acknowledged)) ::kill(child, SIGKILL);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  return last;
}

class TableKill : public TableTest, public ::testing::WithParamInterface<bool> {};

TEST_P(TableKill, KeepsAPrefix) {
  options_.log = GetParam();
  const std::uint32_t said = run_until_killed(options_.directory, options_.log, 7300);
  ASSERT_GE(said, 7300u);
  reopen();
  const auto last = table_->get("last");
  ASSERT_TRUE(last.ok() && last->has_value());
  const auto kept = static_cast<std::uint32_t>(std::stoul(**last));
  if (options_.log) {
    EXPECT_GE(kept, said);
  } else {
    EXPECT_GE(kept, said / 2000 * 2000);  // The last flush before the end.
  }
  for (std::uint32_t i = 1; i <= kept; ++i)
    ASSERT_TRUE(table_->get("row" + std::to_string(i))->has_value()) << i << " of " << kept;
  EXPECT_EQ(rows({"row", "rox"}).size(), kept);
}
INSTANTIATE_TEST_SUITE_P(Log, TableKill, ::testing::Values(true, false));

}  // namespace
}  // namespace starlane::table
