// Lines that load a checkpoint by mmap.
#include <algorithm>
#include <span>
#include <thread>

#include "cli/bench/bench.h"
#include "cli/bench/bytes.h"
#include "cli/bench/checkpoint.h"
#include "cli/bench/memory.h"
#include "cli/terminal.h"

namespace starlane::cli::bench {
namespace {

constexpr double kGb = 1e9;
const Mode* const kModes[] = {&kTogether, &kApart, &kTogetherCached, &kApartCached};

std::vector<Record> records_of(const Bench& bench) { return transformer_records(bench.size() / 2); }

/// The checkpoint is in the volume and, for comparison, on the local file system.
Status prepare(Bench& bench, bool local) {
  const std::uint64_t length = end_of(records_of(bench));
  SL_TRY(bench.need_local(local ? length : 0));
  return bench.need_files({{"checkpoint", length}});
}

std::string size_text(const Bench& bench) { return human_bytes(bench.size() / 2); }

Row row_of(const std::string& line, const std::string& what, const Mode& mode) {
  Row row;
  row.line = line;
  row.what = what;
  row.how = mode.name;
  return row;
}

/// read() of the local file, into new memory as torch.load() does it, or into memory at hand.
Result<double> read_local(const Bench& bench, LoadPlan plan, bool fresh) {
  const std::uint64_t length = end_of(records_of(bench));
  plan.file = bench.local_file();
  const MemoryAtHand memory(length);
  const Memory into = SL_TRY(fresh ? Memory::fresh(length) : Memory::of(length));
  return load_read(plan, into.span());
}

Result<double> map_cold(Bench& bench, LoadPlan plan, const Mode& mode, bool fresh, Row* row) {
  const std::uint64_t length = end_of(records_of(bench));
  SL_TRY(bench.site.cold(mode));
  plan.file = bench.file("checkpoint");
  const MemoryAtHand memory(2 * length + 256_MiB);  // what it is copied into, and what caches it
  const Memory into = SL_TRY(fresh ? Memory::fresh(length) : Memory::of(length));
  return bench.with_cpu(length, row, [&] { return load_mapped(plan, into.span()); });
}

struct Way {
  const char* text;
  bool twice;         // opened, as torch does
  bool fresh;         // copied into memory that is used for the first time
  std::size_t modes;  // how many of kModes are shown
};

/// Cold loads in each mode beside read() of the local file.
Status load_rows(Bench& bench, const LoadPlan& plan, const Way& way, const Row& first) {
  SL_TRY(prepare(bench, true));
  std::vector<Row> rows;
  for (const Mode* mode : std::span(kModes).first(way.modes)) {
    Row row = first;
    row.how = mode->name;
    if (mode->passthrough) row.bar = {Bar::Of::ratio_at_least, 0.6};
    rows.push_back(std::move(row));
  }
  std::vector<double> at_hand;
  for (std::size_t round = 0; round < bench.runs(); ++round) {
    const double local = SL_TRY(read_local(bench, plan, true));
    at_hand.push_back(SL_TRY(read_local(bench, plan, false)));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      bench.say(rows[i], round);
      rows[i].values.push_back(SL_TRY(map_cold(bench, plan, *kModes[i], way.fresh, &rows[i])));
      rows[i].ceilings.push_back(local);
    }
  }
  for (Row& row : rows) {
    row.against =
        "read() of the local file into new memory (memory at hand: " + human_rate(median(at_hand)) +
        ")";
    bench.add(std::move(row));
  }
  return {};
}

double sum_of_bytes(const std::vector<Visit>& visits) {
  double bytes = 0;
  for (const Visit& visit : visits) bytes += static_cast<double>(visit.bytes);
  return bytes;
}

LoadPlan torch_plan(const Bench& bench) {
  LoadPlan plan;
  plan.seed = Bench::kSeed;
  plan.records = records_of(bench);
  plan.threads = std::clamp(std::thread::hardware_concurrency(), 2U, 8U);
  return plan;
}

}  // namespace

Status line_map_forward(Bench& bench, const std::string& name) {
  LoadPlan plan;
  plan.seed = Bench::kSeed;
  Row row;
  row.line = name;
  for (const Way& way : {Way{"opened once", false, false, 4}, Way{"opened twice", true, false, 2},
                         Way{"twice, into new memory", true, true, 2}}) {
    plan.open_twice = way.twice;
    row.what = "mmap of a cold " + size_text(bench) + " checkpoint, forward, " + way.text;
    SL_TRY(load_rows(bench, plan, way, row));
  }
  return {};
}

Status line_map_torch(Bench& bench, const std::string& name) {
  const LoadPlan plan = torch_plan(bench);
  Row row;
  row.line = name;
  row.what = "the same in torch's order, " + std::to_string(plan.threads) + " threads";
  return load_rows(bench, plan, {"", true, false, 4}, row);
}

Status line_second_process(Bench& bench, const std::string& name) {
  SL_TRY(prepare(bench, false));
  LoadPlan plan = torch_plan(bench);
  plan.file = bench.file("checkpoint");
  for (const Mode* mode : kModes) {
    Row faults = row_of(name, "a second process maps it: page faults a GiB", *mode);
    faults.unit = Unit::count;
    Row cpu = row_of(name, "  Starlane's CPU seconds a GB", *mode);
    cpu.unit = Unit::cpu_seconds;
    Row rate = row_of(name, "  its rate", *mode);
    if (mode->passthrough) {
      faults.bar = {Bar::Of::value_below, 1000};
      cpu.bar = {Bar::Of::value_below, 0.02};
    }
    SL_TRY(bench.site.cold(*mode));
    const MemoryAtHand memory(bench.size() / 2);
    [[maybe_unused]] const auto first = SL_TRY(load_in_processes(plan, 1));
    for (std::size_t round = 0; round < bench.runs(); ++round) {
      bench.say(faults, round);
      const double before = bench.site.cpu_seconds();
      const auto visits = SL_TRY(load_in_processes(plan, 1));
      const auto bytes = sum_of_bytes(visits);
      cpu.values.push_back((bench.site.cpu_seconds() - before) / (bytes / kGb));
      faults.values.push_back(static_cast<double>(visits[0].page_faults) /
                              (bytes / static_cast<double>(1_GiB)));
      rate.values.push_back(visits[0].bytes_per_second);
    }
    for (Row* row : {&faults, &cpu, &rate}) bench.add(std::move(*row));
  }
  return {};
}

Status line_eight_processes(Bench& bench, const std::string& name) {
  constexpr std::size_t kProcesses = 8;
  SL_TRY(prepare(bench, false));
  LoadPlan plan = torch_plan(bench);
  plan.file = bench.file("checkpoint");
  plan.threads = 1;
  for (const Mode* mode : kModes) {
    Row fetched = row_of(name, "8 processes load it cold: bytes fetched / its size", *mode);
    fetched.unit = Unit::ratio;
    if (mode->passthrough) fetched.bar = {Bar::Of::value_at_most, 1.05};
    Row rate = row_of(name, "  all together", *mode);
    for (std::size_t round = 0; round < bench.runs(); ++round) {
      bench.say(fetched, round);
      SL_TRY(bench.site.cold(*mode));
      const MemoryAtHand memory(bench.size() / 2 + 256_MiB);
      std::vector<Visit> visits;
      const double before = bench.site.cpu_seconds();
      const double seconds = SL_TRY(timed([&]() -> Status {
        auto loaded = load_in_processes(plan, kProcesses);
        if (loaded.ok()) visits = std::move(*loaded);
        return loaded.status();
      }));
      const double bytes = sum_of_bytes(visits);
      rate.daemon_cpu.push_back((bench.site.cpu_seconds() - before) / (bytes / kGb));
      rate.values.push_back(bytes / seconds);
      const auto total = static_cast<double>(SL_TRY(bench.site.settled_fetched_bytes()));
      fetched.values.push_back(total / (bytes / kProcesses));
    }
    for (Row* row : {&fetched, &rate}) bench.add(std::move(*row));
  }
  return {};
}

}  // namespace starlane::cli::bench
