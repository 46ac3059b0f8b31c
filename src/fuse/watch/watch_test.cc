#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <sstream>

#include "common/rng.h"
#include "fuse/watch/access_log.h"
#include "fuse/watch/profile.h"
#include "fuse/watch/tap.h"

namespace starlane::fuse {
namespace {

using client::AccessEntry;

AccessEntry entry_of(std::string operation, std::string path) {
  AccessEntry entry;
  entry.operation = std::move(operation);
  entry.path = std::move(path);
  return entry;
}

std::string random_text(Rng& rng) {
  std::string text;
  for (std::uint64_t i = rng.next() % 20; i > 0; --i)
    text += static_cast<char>(rng.next() % 255 + 1);
  return text;
}

TEST(AccessEntry, AnyNameSurvivesItsLine) {
  Rng rng(20240611);
  for (int i = 0; i < 20'000; ++i) {
    AccessEntry entry = entry_of("rename", random_text(rng));
    entry.other = i == 0 ? "-" : random_text(rng);
    entry.at = {static_cast<std::int64_t>(rng.next() >> 34),
                static_cast<std::uint32_t>(rng.next() % 1'000'000'000)};
    entry.offset = rng.next(), entry.length = rng.next(), entry.argument = rng.next();
    entry.pid = 77, entry.error = 2, entry.result = rng.next(), entry.trace = rng.next();
    entry.took = Nanoseconds(rng.next() % 1'000'000'000 * 100);
    const std::string line = to_line(entry);
    ASSERT_EQ(line.find('\n'), line.size() - 1);
    const auto back = client::parse_access_line(std::string_view(line).substr(0, line.size() - 1));
    ASSERT_TRUE(back.ok()) << line;
    EXPECT_EQ(back->path, entry.path);
    EXPECT_EQ(back->other, entry.other);
    EXPECT_EQ(back->at, entry.at);
    EXPECT_EQ(back->offset, entry.offset);
    EXPECT_EQ(back->length, entry.length);
    EXPECT_EQ(back->argument, entry.argument);
    EXPECT_EQ(back->pid, entry.pid);
    EXPECT_EQ(back->error, entry.error);
    EXPECT_EQ(back->result, entry.result);
    EXPECT_EQ(back->trace, entry.trace);
    EXPECT_EQ(back->took, entry.took);
  }
}

TEST(AccessEntry, AnythingElseIsRefused) {
  const std::string good = to_line(entry_of("read", "a"));
  for (const std::string& bad :
       {std::string(), std::string("#"), good.substr(0, good.size() / 2), good + "more",
        std::string("1.0 read a - 0 x 0 0 0 0 0.0 0"), std::string("read a b c d e f g h i j k")})
    EXPECT_EQ(client::parse_access_line(bad).code(), Errc::corrupt) << bad;
}

/// Takes nothing until it is let go.
class Slow final : public Tap::Listener {
 public:
  void take(const AccessEntry& entry) override {
    std::unique_lock lock(m_);
    cv_.wait(lock, [this] { return open_; });
    seen_.push_back(entry.offset);
  }
  void open() {
    const std::lock_guard lock(m_);
    open_ = true;
    cv_.notify_all();
  }
  std::vector<std::uint64_t> seen() {
    const std::lock_guard lock(m_);
    return seen_;
  }

 private:
  std::mutex m_;
  std::condition_variable cv_;
  bool open_ = false;
  std::vector<std::uint64_t> seen_;
};

TEST(Tap, WhatDoesNotFitIsDroppedAndCountedAndNobodyWaits) {
  Tap tap;
  EXPECT_FALSE(tap.active());
  const auto slow = std::make_shared<Slow>();
  tap.add(slow);
  EXPECT_TRUE(tap.active());
  constexpr std::uint64_t kOffered = 100'000;
  for (std::uint64_t i = 0; i < kOffered; ++i) {
    AccessEntry entry = entry_of("write", "a");
    entry.offset = i;
    tap.offer(std::move(entry));  // would never return if it waited for the listener
  }
  slow->open();
  tap.remove(slow);
  EXPECT_FALSE(tap.active());
  const auto seen = slow->seen();
  EXPECT_GT(tap.dropped(), 0U);
  EXPECT_GT(seen.size(), 1000U);
  EXPECT_EQ(seen.size() + tap.dropped(), kOffered);
  EXPECT_TRUE(std::ranges::is_sorted(seen));
}

TEST(Tap, SeveralListenUntilTheyAreTakenAway) {
  Tap tap;
  const auto first = std::make_shared<Profile>(), second = std::make_shared<Profile>();
  tap.add(first);
  tap.add(second);
  tap.offer(entry_of("open", "a"));
  tap.remove(first);
  tap.offer(entry_of("open", "b"));
  tap.remove(second);
  EXPECT_EQ(first->rows().at(0).took.count(), 1U);
  EXPECT_EQ(second->rows().at(0).took.count(), 2U);
}

TEST(AccessLog, IsAppendedToAndNothingElseIsTouched) {
  const std::string file = "/tmp/starlane-access-" + std::to_string(::getpid());
  for (const char* path : {"first", "second"}) {
    const auto log = AccessLog::open(file);
    ASSERT_TRUE(log.ok()) << log.status().text();
    (*log)->take(entry_of("open", path));
    (*log)->pause();
  }
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0], client::kAccessLogHeader);
  EXPECT_EQ(client::parse_access_line(lines[2])->path, "second");
  std::ofstream(file, std::ios::trunc)
      << "dear diary, this is a file of somebody's, much longer than the "
         "header of a log, which it must not become\n";
  EXPECT_EQ(AccessLog::open(file).code(), Errc::exists);
  EXPECT_EQ(AccessLog::open("/nowhere/log").code(), Errc::not_found);
  ::unlink(file.c_str());
}

TEST(Profile, CountsByProcessAndKind) {
  Profile profile;
  for (int i = 0; i < 10; ++i) {
    AccessEntry entry = entry_of(i % 2 == 0 ? "read" : "write", "a");
    entry.pid = static_cast<std::uint32_t>(::getpid());
    entry.result = 100;
    entry.took = std::chrono::microseconds(10 + i);
    entry.error = i == 9 ? 5 : 0;
    profile.take(entry);
  }
  const auto rows = profile.rows();
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].operation, "read");
  EXPECT_EQ(rows[0].took.count(), 5U);
  EXPECT_EQ(rows[0].took.sum, (10U + 12 + 14 + 16 + 18) * 1000);
  EXPECT_EQ(rows[0].bytes, 500U);
  EXPECT_EQ(rows[1].errors, 1U);
  EXPECT_NE(rows[0].process, "-");
}

TEST(Profile, EndsWhenNobodyLooks) {
  Tap tap;
  const auto profile = std::make_shared<Profile>(Nanoseconds(0));
  tap.add(profile);
  while (tap.active()) tap.offer(entry_of("open", "a"));
  EXPECT_TRUE(profile->ended());
}

TEST(Profile, IsBoundedHoweverManyProcessesThereAre) {
  Profile profile;
  for (std::uint32_t pid = 100'000'000; pid < 100'002'000; ++pid) {
    AccessEntry entry = entry_of("open", "a");
    entry.pid = pid;
    profile.take(entry);
  }
  const auto rows = profile.rows();
  EXPECT_LE(rows.size(), 600U);
  std::uint64_t all = 0;
  for (const auto& row : rows) all += row.took.count();
  EXPECT_EQ(all, 2000U);
}

}  // namespace
}  // namespace starlane::fuse
