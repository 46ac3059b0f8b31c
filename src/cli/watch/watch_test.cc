#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/watch/page.h"
#include "cli/watch/profile_table.h"
#include "cli/watch/rates.h"
#include "cli/watch/replay.h"
#include "metrics/exposition.h"

namespace starlane::cli {
namespace {

namespace fs = std::filesystem;
using client::AccessEntry;

TEST(Page, ReadsWhatOurExpositionWrites) {
  metrics::Histogram took;
  for (int i = 0; i < 10; ++i) took.record(std::chrono::milliseconds(2));
  metrics::Exposition out;
  out.counter("a_total", "help", 5, {{"k", "x\"\\\ny"}});
  out.counter("a_total", "help", 7, {{"k", "z"}, {"more", "1"}});
  out.gauge("b", "help", -1.5e300);
  out.histogram("c_seconds", "help", took.counted(), metrics::Unit::seconds);
  Page page;
  ASSERT_TRUE(page.add(out.text()).ok());
  EXPECT_EQ(page.sum("a_total"), 12);
  EXPECT_EQ(page.sum("a_total", {{"k", "x\"\\\ny"}}), 5);
  EXPECT_EQ(page.sum("a_total", {{"more", "1"}}), 7);
  EXPECT_EQ(page.sum("a_total", {{"k", "none"}}), 0);
  EXPECT_EQ(page.sum("b"), -1.5e300);
  EXPECT_EQ(page.sum("c_seconds_count"), 10);
  EXPECT_NEAR(page.sum("c_seconds_sum"), 0.020, 1e-9);
  EXPECT_EQ(page.values_of("a_total", "k").size(), 2U);
}

TEST(Page, RefusesAnythingElseWhole) {
  for (const char* bad : {"a{", "a{k=\"x} 1", "a b", "{} 1", "a 1\nnonsense\n"}) {
    Page page;
    EXPECT_EQ(page.add(bad).code(), Errc::corrupt) << bad;
    EXPECT_TRUE(page.empty());
  }
}

TEST(Rates, AreGrowthOverTimeAndNeverNegative) {
  const auto page_of = [](double ops, double sum, double read, double hit, double miss) {
    Page page;
    EXPECT_TRUE(page.add("starlane_fuse_operation_seconds_count{operation=\"READ\"} " +
                         std::to_string(ops) +
                         "\nstarlane_fuse_operation_seconds_sum{operation=\"READ\"} " +
                         std::to_string(sum) + "\nstarlane_fuse_read_bytes_total " +
                         std::to_string(read) + "\nstarlane_client_block_cache_hit_bytes_total " +
                         std::to_string(hit) + "\nstarlane_client_block_cache_miss_bytes_total " +
                         std::to_string(miss) + "\n")
                    .ok());
    return page;
  };
  const Rates rates = rates_between(page_of(10, 1, 100, 0, 0), page_of(30, 1.5, 900, 30, 10), 2);
  EXPECT_DOUBLE_EQ(rates.operations, 10);
  EXPECT_DOUBLE_EQ(rates.operation_ms, 25);
  EXPECT_DOUBLE_EQ(rates.read_bytes, 400);
  EXPECT_DOUBLE_EQ(rates.block_hits, 0.75);
  EXPECT_TRUE(std::isnan(rates.name_hits));
  const Rates restarted = rates_between(page_of(30, 1.5, 900, 30, 10), page_of(1, 0.1, 2, 0, 0), 1);
  EXPECT_EQ(restarted.operations, 0);
  EXPECT_EQ(restarted.read_bytes, 0);
}

std::string profile_page(std::uint64_t reads, std::uint64_t ns_each) {
  metrics::Counted took;
  took.buckets[metrics::bucket_of(ns_each)] = reads;
  took.sum = reads * ns_each;
  return nlohmann::json{{"dropped", reads},
                        {"rows",
                         {{{"pid", 7},
                           {"process", "cp"},
                           {"operation", "read"},
                           {"errors", 0},
                           {"bytes", reads * 10},
                           {"total_ns", took.sum},
                           {"buckets", took.buckets}},
                          {{"pid", 8},
                           {"process", "tar"},
                           {"operation", "read"},
                           {"errors", 1},
                           {"bytes", 0},
                           {"total_ns", 1},
                           {"buckets", metrics::Counted{{1}, 1}.buckets}}}}}
      .dump();
}

TEST(ProfileTable, ShowsWhatCameSinceAndSumsIt) {
  ProfileTable before, now;
  ASSERT_TRUE(before.add(profile_page(10, 1000)).ok());
  ASSERT_TRUE(now.add(profile_page(30, 1000)).ok());
  const ProfileTable grown = now.since(before);
  ASSERT_EQ(grown.rows().size(), 1U);
  EXPECT_EQ(grown.rows()[0].process, "cp");
  EXPECT_EQ(grown.rows()[0].took.count(), 20U);
  EXPECT_EQ(grown.rows()[0].bytes, 200U);
  EXPECT_EQ(grown.dropped(), 20U);
  EXPECT_EQ(now.by_operation().size(), 1U);
  EXPECT_EQ(now.by_operation()[0].took.count(), 31U);
  ASSERT_EQ(now.by_process().size(), 2U);
  EXPECT_EQ(now.by_process()[0].pid, 7U);
  EXPECT_GE(now.by_operation()[0].took.quantile(0.9), 1000U);
  // Begun anew meanwhile: all of it is new.
  EXPECT_EQ(before.since(now).rows()[0].took.count(), 10U);
  EXPECT_EQ(ProfileTable().add("{}").code(), Errc::corrupt);
  EXPECT_EQ(ProfileTable().add("").code(), Errc::corrupt);
}

/// What of an entry a test cares for.
struct More {
  std::string other = {};
  std::uint64_t offset = 0, length = 0, argument = 0;
  int error = 0;
  std::uint64_t result = 0;
};

AccessEntry entry_of(const std::string& operation, const std::string& path, const More& more = {}) {
  AccessEntry entry;
  entry.operation = operation;
  entry.path = path;
  entry.other = more.other;
  entry.offset = more.offset;
  entry.length = more.length;
  entry.argument = more.argument;
  entry.error = more.error;
  entry.result = more.result;
  return entry;
}

class Again : public testing::Test {
 protected:
  Again() {
    char name[] = "/tmp/starlane-replay-XXXXXX";
    base_ = ::mkdtemp(name);
  }
  ~Again() override { fs::remove_all(base_); }
  void did(const std::string& operation, const std::string& path, const More& more = {}) {
    log_.push_back(entry_of(operation, path, more));
  }
  fs::path into() const { return base_ / "into"; }

  fs::path base_;
  std::vector<AccessEntry> log_;
};

TEST_F(Again, DoesWhatTheLogSays) {
  did("lookup", "volumes/w/old", {.error = 0});
  did("open", "volumes/w/old", {.argument = O_RDONLY});
  did("read", "volumes/w/old", {.offset = 4096, .length = 8192, .result = 5000});
  did("release", "volumes/w/old");
  did("mkdir", "volumes/w/d", {.argument = 0750});
  did("lookup", "volumes/w/d/new", {.error = ENOENT});
  did("create", "volumes/w/d/new", {.length = 0640, .argument = O_RDWR | O_CREAT});
  did("write", "volumes/w/d/new", {.offset = 100, .length = 50, .result = 50});
  did("rename2", "volumes/w/d/new", {.other = "volumes/w/moved"});
  did("write", "volumes/w/moved", {.offset = 150, .length = 50, .result = 50});
  did("release", "volumes/w/moved");
  did("symlink", "volumes/w/link", {.other = "/etc/passwd"});
  did("unlink", "volumes/w/old");
  did("getattr", "inode:77");
  did("flush", "volumes/w/moved");
  Replay replay(into());
  ASSERT_TRUE(replay.prepare(log_).ok());
  EXPECT_EQ(fs::file_size(into() / "volumes/w/old"), 9096U);
  EXPECT_FALSE(fs::exists(into() / "volumes/w/d"));
  replay.run(log_);
  for (const auto& [name, line] : replay.lines()) EXPECT_EQ(line.differ, 0U) << name;
  EXPECT_EQ(replay.left_out(), 2U);
  EXPECT_EQ(replay.lines().at("read").bytes, 5000U);
  EXPECT_FALSE(fs::exists(into() / "volumes/w/old"));
  EXPECT_EQ(fs::file_size(into() / "volumes/w/moved"), 200U);
  EXPECT_FALSE(fs::read_symlink(into() / "volumes/w/link").is_absolute());
  struct stat status {};
  ASSERT_EQ(::stat((into() / "volumes/w/d").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0750U);
}

TEST_F(Again, WhatALogMakesFirstFindsItsDirectoryThere) {
  did("mkdir", "volumes/w/tree", {.argument = 0755});
  did("create", "volumes/w/tree/f", {.length = 0600, .argument = O_RDWR | O_CREAT});
  did("rename2", "volumes/w/tree/f", {.other = "volumes/second/g"});
  Replay replay(into());
  ASSERT_TRUE(replay.prepare(log_).ok());
  EXPECT_FALSE(fs::exists(into() / "volumes/w/tree"));
  replay.run(log_);
  for (const auto& [name, line] : replay.lines()) EXPECT_EQ(line.differ, 0U) << name;
  EXPECT_TRUE(fs::exists(into() / "volumes/second/g"));
}

TEST_F(Again, TellsWhatComesOutOtherwise) {
  did("create", "a", {.length = 0600, .argument = O_RDWR | O_CREAT | O_EXCL});
  did("create", "a", {.length = 0600, .argument = O_RDWR | O_CREAT | O_EXCL});
  did("write", "a", {.length = 10, .error = ENOSPC});
  Replay replay(into());
  ASSERT_TRUE(replay.prepare(log_).ok());
  replay.run(log_);
  EXPECT_EQ(replay.lines().at("create").differ, 1U);
  EXPECT_EQ(replay.lines().at("write").differ, 1U);
}

TEST_F(Again, ALogDoesNotLeadOutOfItsDirectory) {
  std::ofstream(base_ / "outside") << "mine";
  for (const char* path : {"../outside", "/etc/hostname", "a/../../outside", "a/../../../etc/x"}) {
    did("unlink", path);
    did("create", path, {.length = 0600, .argument = O_RDWR | O_CREAT | O_TRUNC});
    did("rename", "a", {.other = path});
  }
  Replay replay(into());
  ASSERT_TRUE(replay.prepare(log_).ok());
  replay.run(log_);
  EXPECT_EQ(replay.left_out(), log_.size());
  EXPECT_EQ(fs::file_size(base_ / "outside"), 4U);
}

TEST_F(Again, IntoAnEmptyDirectoryOnly) {
  fs::create_directories(into());
  std::ofstream(into() / "somebody's") << "x";
  EXPECT_EQ(Replay(into()).prepare({}).code(), Errc::not_empty);
}

TEST_F(Again, ALogIsReadWithItsLineNumbers) {
  const std::string file = (base_ / "log").string();
  const std::string line = to_line(entry_of("read", "a b"));
  const auto write = [&](const std::string& text) { std::ofstream(file) << text; };
  write(std::string(client::kAccessLogHeader) + "\n" + line + line + line.substr(0, 30));
  EXPECT_EQ(read_access_log(file)->size(), 2U);  // cut off in the last line
  write(std::string(client::kAccessLogHeader) + "\n" + line + "nonsense\n" + line);
  EXPECT_NE(read_access_log(file).status().text().find("log:3:"), std::string::npos);
  write(line);
  EXPECT_EQ(read_access_log(file).code(), Errc::corrupt);
  EXPECT_EQ(read_access_log("/nowhere").code(), Errc::not_found);
}

}  // namespace
}  // namespace starlane::cli
