// Lines about data sets: publishing one, and copying it into a volume, where no byte moves.
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cli/bench/bench.h"
#include "cli/bench/bytes.h"
#include "cli/bench/memory.h"
#include "cli/terminal.h"

namespace starlane::cli::bench {
namespace fs = std::filesystem;
namespace {

struct Set {
  std::string name;
  std::vector<std::uint64_t> lengths;

  std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const std::uint64_t length : lengths) sum += length;
    return sum;
  }
};

Set large_files(const Bench& bench) {
  static constexpr std::uint64_t kLengths[] = {4_MiB, 64_MiB, 8_MiB, 32_MiB, 16_MiB};
  Set set{"large", {}};
  for (std::size_t i = 0; set.bytes() < bench.size() / 4; ++i)
    set.lengths.push_back(std::min(kLengths[i % std::size(kLengths)],
                                   std::max<std::uint64_t>(4_MiB, bench.size() / 4 - set.bytes())));
  return set;
}

Set small_files(const Bench& bench) {
  constexpr std::size_t kFiles = 2000, kFew = 400;
  return {"small", std::vector<std::uint64_t>(bench.size() >= 1_GiB ? kFiles : kFew, 16_KiB)};
}

Status make_set(const fs::path& directory, const Set& set) {
  std::error_code failed;
  fs::create_directories(directory, failed);
  for (std::size_t i = 0; i < set.lengths.size(); ++i) {
    const auto written = write_file({.file = directory / ("f" + std::to_string(i)),
                                     .length = set.lengths[i],
                                     .seed = i + 1,
                                     .durable = false});
    if (!written.ok()) return written.status();
  }
  return {};
}

Status check_copy(const fs::path& directory, const Set& set) {
  ReadPlan plan;
  for (std::size_t i = 0; i < std::min<std::size_t>(set.lengths.size(), 16); ++i) {
    plan.files = {directory / ("f" + std::to_string(i))};
    plan.seeds = {i + 1};
    const auto read = read_files(plan);
    if (!read.ok()) return read.status().with("the copy of " + plan.files[0].string());
  }
  return {};
}

Status remove_tree(const fs::path& directory) {
  std::error_code failed;
  fs::remove_all(directory, failed);
  return failed ? Status(Errc::io, "cannot remove " + directory.string() + ": " + failed.message())
                : Status();
}

struct Rows {
  Row publish, added, rate;
};

Rows rows_of(const std::string& line, const Mode& mode, const Set& set, bool by_files) {
  Rows rows;
  const std::string what = human_count(set.lengths.size()) + " files, " + human_bytes(set.bytes());
  for (Row* row : {&rows.publish, &rows.added, &rows.rate}) {
    row->line = line;
    row->how = mode.name;
  }
  rows.publish.what = "dataset publish of " + what;
  rows.added.what = "cp -r of them into a volume: bytes added to the store";
  rows.added.unit = Unit::percent;
  rows.added.against = "of their size";
  rows.rate.what = by_files ? "cp -r of them into a volume" : "  logical rate";
  rows.publish.unit = rows.rate.unit = by_files ? Unit::per_second : Unit::bytes_per_second;
  rows.publish.against = rows.rate.against = "cp -r on the local file system";
  if (!by_files) rows.added.bar = {Bar::Of::value_below, 1};
  return rows;
}

/// One round: local copy, publish, copy out of the published set, and all of it away again.
Status round_of(Bench& bench, const Mode& mode, const Set& set, double amount, Rows* rows) {
  const fs::path source = bench.local() / set.name, twin = bench.local() / "twin";
  const fs::path copy = bench.site.volume() / set.name;
  const double local = SL_TRY(timed([&] {
    return run_tool({"cp", "-r", source.string(), twin.string()});
  }));
  SL_TRY(remove_tree(twin));
  SL_TRY(bench.site.cold(mode));
  const MemoryAtHand memory(2 * set.bytes());
  const double publish = SL_TRY(timed([&] {
    return bench.site.command({"dataset", "publish", source.string(), set.name, "v1"}).status();
  }));
  const std::uint64_t before = SL_TRY(bench.site.stored_bytes());
  const fs::path published = bench.site.mount() / "public" / set.name / "v1";
  const double taken = SL_TRY(timed([&] {
    return run_tool({"cp", "-r", published.string(), copy.string()});
  }));
  const std::uint64_t after = SL_TRY(bench.site.stored_bytes());
  SL_TRY(check_copy(copy, set));
  SL_TRY(remove_tree(copy));
  rows->publish.values.push_back(amount / publish);
  rows->publish.ceilings.push_back(amount / local);
  rows->rate.values.push_back(amount / taken);
  rows->rate.ceilings.push_back(amount / local);
  rows->added.values.push_back(100 * static_cast<double>(after > before ? after - before : 0) /
                               static_cast<double>(set.bytes()));
  return {};
}

/// The pins of the copy go once the keeper has seen that it is gone.
Status delete_set(Bench& bench, const Set& set) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(30));
  for (;;) {
    const auto deleted = bench.site.command({"dataset", "delete", set.name, "v1"});
    if (deleted.ok()) return bench.site.wait_for_space(64_MiB);
    if (deadline.passed()) return deleted.status();
    ::usleep(200'000);
  }
}

Status copy_rows(Bench& bench, const std::string& line, const Set& set, bool by_files) {
  SL_TRY(bench.drop_files());
  SL_TRY(make_set(bench.local() / set.name, set));
  const double amount =
      by_files ? static_cast<double>(set.lengths.size()) : static_cast<double>(set.bytes());
  for (const Mode* mode : {&kTogether, &kApart}) {
    Rows rows = rows_of(line, *mode, set, by_files);
    for (std::size_t round = 0; round < bench.runs(); ++round) {
      bench.say(rows.rate, round);
      SL_TRY(round_of(bench, *mode, set, amount, &rows));
      SL_TRY(delete_set(bench, set));
    }
    bench.add(rows.publish);
    if (!by_files) bench.add(rows.added);
    bench.add(rows.rate);
  }
  return remove_tree(bench.local() / set.name);
}

}  // namespace

Status line_copy(Bench& bench, const std::string& name) {
  return copy_rows(bench, name, large_files(bench), false);
}

Status line_copy_small(Bench& bench, const std::string& name) {
  return copy_rows(bench, name, small_files(bench), true);
}

}  // namespace starlane::cli::bench
