// Lines that move bytes by read() and write().
#include <unistd.h>

#include <algorithm>

#include "cli/bench/bench.h"
#include "cli/bench/bytes.h"
#include "cli/bench/memory.h"
#include "cli/terminal.h"

namespace starlane::cli::bench {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kFiles = 4;

std::string part(std::size_t number) { return "part" + std::to_string(number); }

/// A way to read, on the site and on the ceiling alike.
struct Pattern {
  std::vector<std::string> names;
  std::size_t threads = 1;
  std::size_t step = 1_MiB;
  bool direct = false;
  bool try_direct = true;  // the ceiling is the better of page cache and direct

  ReadPlan plan(const fs::path& directory) const {
    ReadPlan out{.files = {}, .seeds = {}, .threads = threads, .step = step, .direct = direct};
    for (const std::string& name : names) {
      out.files.push_back(directory / name);
      out.seeds.push_back(Bench::kSeed);
    }
    return out;
  }
};

Result<double> measure_ceiling(Bench& bench, const Pattern& pattern) {
  std::vector<Shown> shown;
  for (const std::string& name : pattern.names)
    shown.push_back({name, bench.local_file(), 0, bench.size() / pattern.names.size()});
  SL_TRY(bench.ceiling.cold(shown));
  const MemoryAtHand memory(bench.size());
  ReadPlan plan = pattern.plan(bench.ceiling.mount());
  double best = SL_TRY(read_files(plan));
  if (!plan.direct && pattern.try_direct) {
    plan.direct = true;
    const double direct = SL_TRY(read_files(plan));
    best = std::max(best, direct);
  }
  SL_TRY(bench.ceiling.stop());
  return best;
}

/// Rows of one pattern, a mode each, round by round beside the ceiling.
Status read_rows(Bench& bench, const Pattern& pattern, Row first) {
  const std::pair<const Mode*, double> modes[] = {
      {&kTogether, 0.6}, {&kApart, 0.4}, {&kTogetherCached, 0}};
  std::vector<Row> rows;
  for (const auto& [mode, least] : modes) {
    Row row = first;
    row.how = mode->name;
    if (least > 0) row.bar = {Bar::Of::ratio_at_least, least};
    rows.push_back(std::move(row));
  }
  for (std::size_t round = 0; round < bench.runs(); ++round) {
    const double best = SL_TRY(measure_ceiling(bench, pattern));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      bench.say(rows[i], round);
      SL_TRY(bench.site.cold(*modes[i].first));
      const MemoryAtHand memory(bench.size());
      const double rate = SL_TRY(bench.with_cpu(
          bench.size(), &rows[i], [&] { return read_files(pattern.plan(bench.site.volume())); }));
      rows[i].values.push_back(rate);
      rows[i].ceilings.push_back(best);
    }
  }
  for (Row& row : rows) bench.add(std::move(row));
  return {};
}

Status prepare_big(Bench& bench) {
  SL_TRY(bench.need_local(bench.size()));
  return bench.need_files({{"big", bench.size()}});
}

std::string size_text(const Bench& bench) { return human_bytes(bench.size()); }

}  // namespace

Status line_write(Bench& bench, const std::string& name) {
  Row rows[2];
  const Mode* const modes[] = {&kTogether, &kApart};
  for (std::size_t i = 0; i < 2; ++i) {
    rows[i].line = name;
    rows[i].what = "write " + size_text(bench) + ", then fsync";
    rows[i].how = modes[i]->name;
    rows[i].against = "a local file";
    rows[i].bar = {Bar::Of::ratio_at_least, 0.5};
  }
  SL_TRY(bench.drop_files());
  std::error_code ignored;
  fs::create_directories(bench.local(), ignored);
  for (std::size_t round = 0; round < bench.runs(); ++round) {
    WritePlan plan{.file = bench.local_file(), .length = bench.size(), .seed = Bench::kSeed};
    const double local = SL_TRY([&] {
      const MemoryAtHand memory(bench.size());
      return write_file(plan);
    }());
    fs::remove(plan.file, ignored);
    for (std::size_t i = 0; i < 2; ++i) {
      bench.say(rows[i], round);
      SL_TRY(bench.site.cold(*modes[i]));
      const MemoryAtHand memory(bench.size());
      plan.file = bench.file("written");
      const double rate =
          SL_TRY(bench.with_cpu(bench.size(), &rows[i], [&] { return write_file(plan); }));
      rows[i].values.push_back(rate);
      rows[i].ceilings.push_back(local);
      fs::remove(plan.file, ignored);
      SL_TRY(bench.site.wait_for_space(64_MiB));
    }
  }
  for (Row& row : rows) bench.add(std::move(row));
  return {};
}

Status line_read(Bench& bench, const std::string& name) {
  SL_TRY(prepare_big(bench));
  Row row;
  row.line = name;
  row.what = "read() " + size_text(bench) + ", 1 MiB calls";
  row.against = "FUSE from memory, the better of page cache and direct";
  return read_rows(bench, {.names = {"big"}}, row);
}

Status line_read_threads(Bench& bench, const std::string& name) {
  SL_TRY(prepare_big(bench));
  Row row;
  row.line = name;
  row.what = "the same, 4 threads on one descriptor";
  row.against = "the same by FUSE from memory";
  return read_rows(bench, {.names = {"big"}, .threads = 4}, row);
}

Status line_read_direct(Bench& bench, const std::string& name) {
  SL_TRY(prepare_big(bench));
  Row row;
  row.line = name;
  row.what = "O_DIRECT reads of 4 MiB";
  row.against = "the same by FUSE from memory";
  return read_rows(bench, {.names = {"big"}, .step = 4_MiB, .direct = true}, row);
}

Status line_read_files(Bench& bench, const std::string& name) {
  SL_TRY(bench.need_local(bench.size()));
  Pattern pattern;
  pattern.threads = kFiles;
  std::vector<Bench::File> files;
  for (std::size_t i = 0; i < kFiles; ++i) {
    files.push_back({part(i), bench.size() / kFiles});
    pattern.names.push_back(part(i));
  }
  SL_TRY(bench.need_files(files));
  Row row;
  row.line = name;
  row.what = "read() of 4 files of " + human_bytes(bench.size() / kFiles) + " at once";
  row.against = "the same by FUSE from memory";
  return read_rows(bench, pattern, row);
}

namespace {

/// Where a read ends: in the page cache or the node cache, or, with O_DIRECT, in the daemon.
struct RandomCase {
  const Mode* mode;
  std::size_t threads;
  bool direct;
};

Status random_row(Bench& bench, const std::string& name, const RandomCase& one,
                  std::uint64_t length) {
  Row row;
  row.line = name;
  row.what = std::string("4 KiB reads at random, warm file") +
             (one.direct ? ", from the daemon" : "") + ", " + std::to_string(one.threads) +
             " at a time";
  row.how = one.mode->name;
  row.unit = Unit::per_second;
  row.against = one.direct ? "the same by FUSE from memory" : "the local file";
  row.bar = {Bar::Of::ratio_at_least, one.direct ? 0.7 : 0.9};
  SL_TRY(bench.site.cold(*one.mode));
  if (one.direct) SL_TRY(bench.ceiling.cold({{"random", bench.local_file(), 0, length}}));
  const MemoryAtHand memory(bench.size());
  for (int pass = 0; pass < 2; ++pass) {
    [[maybe_unused]] const double warming =
        SL_TRY(read_files({.files = {bench.file("random")}, .seeds = {Bench::kSeed}}));
  }
  RandomPlan here{bench.file("random"), Bench::kSeed, 100'000, one.threads, one.direct};
  RandomPlan there = here;
  there.file = one.direct ? bench.ceiling.mount() / "random" : bench.local_file();
  for (std::size_t round = 0; round < bench.runs(); ++round) {
    bench.say(row, round);
    const double ceiling = SL_TRY(random_reads(there));
    const double value = SL_TRY(random_reads(here));
    row.ceilings.push_back(ceiling);
    row.values.push_back(value);
  }
  SL_TRY(bench.ceiling.stop());
  bench.add(std::move(row));
  return {};
}

}  // namespace

Status line_random(Bench& bench, const std::string& name) {
  const std::uint64_t length = bench.size() / kFiles;
  const std::uint64_t hot = std::min<std::uint64_t>(length, 64_MiB);  // the block cache holds it
  SL_TRY(bench.need_local(length));
  SL_TRY(bench.need_files({{"random", length}}));
  for (const std::size_t threads : {1, 16})
    for (const Mode* mode : {&kTogether, &kTogetherCached})
      SL_TRY(random_row(bench, name, {mode, threads, false}, length));
  SL_TRY(bench.need_files({{"random", hot}}));
  for (const std::size_t threads : {1, 16})
    SL_TRY(random_row(bench, name, {&kTogetherCached, threads, true}, hot));
  return {};
}

}  // namespace starlane::cli::bench
