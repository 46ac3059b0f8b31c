// Lines about names: a second's worth of create, stat, list and unlink.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <thread>

#include "cli/bench/bench.h"
#include "cli/bench/names.h"
#include "common/bytes.h"
#include "common/clock.h"

namespace starlane::cli::bench {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kPhases = 4;
constexpr const char* kPhaseNames[kPhases] = {"create", "stat, uncached", "list, uncached",
                                              "unlink"};
constexpr Result<double> (*kPhaseWork[kPhases])(const NamesPlan&) = {create_files, stat_files,
                                                                     list_files, unlink_files};

struct Shape {
  std::size_t threads;
  std::size_t directories;
};

/// One round of the four phases in `plan.directory`; `cold` runs before those that must not find
/// anything cached.
Status round_of(const NamesPlan& plan, const std::function<Status()>& cold,
                std::vector<double>* rates) {
  SL_TRY(make_directories(plan));
  rates->clear();
  for (std::size_t phase = 0; phase < kPhases; ++phase) {
    if (phase == 1 || phase == 2) SL_TRY(cold());
    rates->push_back(SL_TRY(kPhaseWork[phase](plan)));
  }
  return remove_directories(plan);
}

/// The server in memory cannot be started anew without losing its files; what the kernel believes
/// of their names and attributes it believes for a second.
Status forget() {
  std::this_thread::sleep_for(Milliseconds(1100));
  return {};
}

/// Share of each phase of the time that one file takes through all four.
std::string share_text(const std::vector<Row>& rows, std::size_t phase) {
  double total = 0;
  for (const Row& row : rows) total += 1 / std::max(median(row.values), 1e-9);
  char text[64];
  std::snprintf(text, sizeof text, "FUSE from memory; %.0f %% of the four phases' time",
                100 / std::max(median(rows[phase].values), 1e-9) / total);
  return text;
}

std::vector<Row> empty_rows(const std::string& line, const Mode& mode, const Shape& shape) {
  std::vector<Row> rows(kPhases);
  for (std::size_t phase = 0; phase < kPhases; ++phase) {
    rows[phase].line = line;
    rows[phase].what = std::string(kPhaseNames[phase]) +
                       (shape.directories == 1 ? ", one directory" : ", many directories");
    rows[phase].how = std::string(mode.name) + ", " + std::to_string(shape.threads) +
                      (shape.threads == 1 ? " thread" : " threads");
    rows[phase].unit = Unit::per_second;
  }
  return rows;
}

Status names_rows(Bench& bench, const std::string& line, const Mode& mode, const Shape& shape) {
  std::vector<Row> rows = empty_rows(line, mode, shape);
  NamesPlan plan{.directory = {},
                 .files = bench.size() >= 1_GiB ? std::size_t{8000} : std::size_t{1600},
                 .directories = shape.directories,
                 .threads = shape.threads};
  std::vector<double> rates;
  for (std::size_t round = 0; round < bench.runs(); ++round) {
    bench.say(rows[0], round);
    SL_TRY(bench.ceiling.cold({}));
    plan.directory = bench.ceiling.mount();
    SL_TRY(round_of(plan, forget, &rates));
    for (std::size_t phase = 0; phase < kPhases; ++phase)
      rows[phase].ceilings.push_back(rates[phase]);
    SL_TRY(bench.ceiling.stop());
    SL_TRY(bench.site.ensure(mode));
    plan.directory = bench.site.volume();
    SL_TRY(round_of(
        plan, [&] { return bench.site.cold(mode); }, &rates));
    for (std::size_t phase = 0; phase < kPhases; ++phase)
      rows[phase].values.push_back(rates[phase]);
  }
  for (std::size_t phase = 0; phase < kPhases; ++phase) {
    rows[phase].against = share_text(rows, phase);
    bench.add(rows[phase]);
  }
  return {};
}

}  // namespace

Status line_names(Bench& bench, const std::string& name) {
  for (const Mode* mode : {&kTogether, &kApart})
    for (const Shape& shape : {Shape{1, 1}, Shape{8, 1}, Shape{8, 64}})
      SL_TRY(names_rows(bench, name, *mode, shape));
  return {};
}

}  // namespace starlane::cli::bench
