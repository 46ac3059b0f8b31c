// The benchmark's own measures: that they notice wrong bytes, lay a checkpoint out as said, and
// compute what the table shows.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "cli/bench/bytes.h"
#include "cli/bench/checkpoint.h"
#include "cli/bench/memory.h"
#include "cli/bench/names.h"
#include "cli/bench/pattern.h"
#include "cli/bench/report.h"
#include "cli/bench/site.h"
#include "cli/bench/workplace.h"

namespace starlane::cli::bench {
namespace {

namespace fs = std::filesystem;

class BenchTest : public testing::Test {
 protected:
  BenchTest() {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  ~BenchTest() override { fs::remove_all(directory_); }

  fs::path make_file(std::uint64_t length) {
    const fs::path file = directory_ / "file";
    EXPECT_TRUE(write_file({.file = file, .length = length, .seed = 7}).ok());
    return file;
  }

  /// One wrong byte at `offset`.
  static void spoil(const fs::path& file, std::uint64_t offset) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(offset));
    const int byte = stream.get();
    stream.seekp(static_cast<std::streamoff>(offset));
    stream.put(static_cast<char>(byte ^ 1));
  }

  const fs::path directory_ =
      fs::temp_directory_path() / ("starlane-bench-test-" + std::to_string(::getpid()));
};

TEST_F(BenchTest, ReadingFindsAPageThatIsWrong) {
  const fs::path file = make_file(5_MiB + 123);
  EXPECT_TRUE(read_files({.files = {file}, .seeds = {7}, .threads = 3}).ok());
  EXPECT_EQ(read_files({.files = {file}, .seeds = {8}}).code(), Errc::corrupt);
  spoil(file, 3 * kPage);
  EXPECT_EQ(read_files({.files = {file}, .seeds = {7}, .threads = 3}).code(), Errc::corrupt);
}

TEST_F(BenchTest, LoadingCopiesEveryRecordToItsPlace) {
  LoadPlan plan;
  plan.records = transformer_records(8_MiB);
  plan.file = make_file(end_of(plan.records));
  plan.seed = 7;
  plan.threads = 3;
  const Memory into = Memory::of(end_of(plan.records)).value();
  ASSERT_TRUE(load_mapped(plan, into.span()).ok());
  std::vector<char> file(end_of(plan.records));
  std::ifstream(plan.file, std::ios::binary).read(file.data(), std::ssize(file));
  for (const Record& record : plan.records)
    ASSERT_EQ(
        std::memcmp(file.data() + record.offset, into.span().data() + record.offset, record.length),
        0);
  spoil(plan.file, round_up(plan.records[5].offset, kPage));
  EXPECT_EQ(load_mapped(plan, into.span()).code(), Errc::corrupt);
  plan.records.clear();
  EXPECT_EQ(load_read(plan, into.span()).code(), Errc::corrupt);
}

TEST_F(BenchTest, VisitorsSayHowMuchTheyRead) {
  LoadPlan plan;
  plan.file = make_file(2_MiB);
  plan.seed = 7;
  const auto visits = load_in_processes(plan, 3);
  ASSERT_TRUE(visits.ok());
  ASSERT_EQ(visits->size(), 3U);
  for (const Visit& visit : *visits) {
    EXPECT_EQ(visit.bytes, 2_MiB);
    EXPECT_GT(visit.page_faults, 0U);
  }
  plan.file = directory_ / "none";
  EXPECT_FALSE(load_in_processes(plan, 2).ok());
}

TEST(Checkpoint, RecordsLieInLexicographicOrderAndDoNotOverlap) {
  std::vector<Record> records = transformer_records(1_GiB);
  ASSERT_GT(records.size(), 12U);
  EXPECT_LT(records[1].offset, records[10].offset);
  EXPECT_LT(records[10].offset, records[2].offset);
  EXPECT_NEAR(static_cast<double>(end_of(records)), 1.0 * 1_GiB, 0.02 * 1_GiB);
  std::ranges::sort(records, {}, &Record::offset);
  for (std::size_t i = 1; i < records.size(); ++i)
    EXPECT_LE(records[i - 1].offset + records[i - 1].length, records[i].offset);
}

TEST_F(BenchTest, NamesComeAndGo) {
  const NamesPlan plan{.directory = directory_, .files = 100, .directories = 4, .threads = 2};
  ASSERT_TRUE(make_directories(plan).ok());
  ASSERT_TRUE(create_files(plan).ok());
  EXPECT_FALSE(create_files(plan).ok());  // they exist
  EXPECT_TRUE(stat_files(plan).ok());
  EXPECT_TRUE(list_files(plan).ok());
  fs::remove(directory_ / "d1" / "f1");
  EXPECT_EQ(list_files(plan).code(), Errc::corrupt);
  std::ofstream(directory_ / "d1" / "f1");
  EXPECT_TRUE(unlink_files(plan).ok());
  EXPECT_TRUE(remove_directories(plan).ok());
}

TEST(Report, RatiosAreOfRounds) {
  Row row;
  row.values = {1, 10, 3};
  row.ceilings = {2, 20, 10};  // a neighbour slowed the first and last round
  EXPECT_DOUBLE_EQ(median(row.values), 3);
  EXPECT_DOUBLE_EQ(*ratio_of(row), 0.5);
  EXPECT_FALSE(reached(row).has_value());
  row.bar = {Bar::Of::ratio_at_least, 0.5};
  EXPECT_TRUE(*reached(row));
  row.bar = {Bar::Of::value_below, 3};
  EXPECT_FALSE(*reached(row));
  row.bar = {Bar::Of::value_at_most, 3};
  EXPECT_TRUE(*reached(row));
  EXPECT_DOUBLE_EQ(median({4, 1}), 2.5);
}

TEST(Shown, WordsGoThereAndBack) {
  const Shown shown{"name", "/a:b/c", 4096, 1_GiB};
  const Result<Shown> back = shown_of(word_of(shown));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->name, shown.name);
  EXPECT_EQ(back->file, shown.file);
  EXPECT_EQ(back->offset, shown.offset);
  EXPECT_EQ(back->length, shown.length);
  for (const char* wrong : {"", "1", "1:", "1:2", "1:2:x", "x:2:a:b"})
    EXPECT_EQ(shown_of(wrong).code(), Errc::invalid) << wrong;
}

TEST_F(BenchTest, AWorkplaceIsEmptyAfterwardsWhateverHappened) {
  fs::path inside;
  const auto count = [&] { return std::distance(fs::directory_iterator(directory_), {}); };
  EXPECT_TRUE(in_workplace(directory_, [](const fs::path& directory) -> Status {
                std::ofstream(directory / "file") << "x";
                return {};
              }).ok());
  EXPECT_EQ(count(), 0);
  const Status failed = in_workplace(
      directory_, [](const fs::path&) { return Status(Errc::no_space, "no room: none"); });
  EXPECT_EQ(failed.code(), Errc::no_space);
  EXPECT_EQ(failed.text(), "no room: none");
  const Status died = in_workplace(directory_, [](const fs::path&) -> Status {
    ::kill(::getpid(), SIGKILL);
    return {};
  });
  EXPECT_EQ(died.code(), Errc::io);
  const Status interrupted = in_workplace(directory_, [](const fs::path&) -> Status {
    ::kill(::getppid(), SIGINT);
    ::pause();
    return {};
  });
  EXPECT_EQ(interrupted.code(), Errc::interrupted);
  fs::create_directory(directory_ / "starlane-bench-999999999");  // of a run whose process is gone
  EXPECT_TRUE(in_workplace(directory_, [](const fs::path&) { return Status(); }).ok());
  EXPECT_EQ(count(), 0);
}

}  // namespace
}  // namespace starlane::cli::bench
