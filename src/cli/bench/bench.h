// One run of the benchmark: the site and the ceiling that its lines share, the files that they
// need, and the rows that they found. A line is a function over it; `all_lines` is the list. One
// thread.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cli/bench/report.h"
#include "cli/bench/site.h"

namespace starlane::cli::bench {

class Bench {
 public:
  Bench(std::filesystem::path directory, const Settings& settings)
      : site(directory),
        ceiling(directory),
        directory_(std::move(directory)),
        settings_(settings) {}

  Site site;
  Ceiling ceiling;

  std::uint64_t size() const { return settings_.size_bytes; }
  std::size_t runs() const { return settings_.runs; }
  std::filesystem::path local() const { return directory_ / "local"; }
  std::filesystem::path local_file() const { return local() / "file"; }

  /// A file of the volume or of local(): its name, length and the seed of its bytes.
  struct File {
    std::string name;
    std::uint64_t length = 0;
  };
  /// The volume holds these files, whole and durable, and no others of need_files; the space of the
  /// others is given back first.
  Status need_files(const std::vector<File>& files);
  /// local_file() has just this length.
  Status need_local(std::uint64_t length);
  /// Memory is short: neither keeps any file.
  Status drop_files();
  std::filesystem::path file(const std::string& name) const { return site.volume() / name; }
  /// Of every file's bytes: all begin the same, so that the ceiling can show parts of one.
  static constexpr std::uint64_t kSeed = 1;

  /// Starlane's CPU seconds a GB while `work` ran, beside what `work` answers.
  template <typename Work>
  Result<double> with_cpu(std::uint64_t bytes, Row* row, const Work& work) {
    const double before = site.cpu_seconds();
    Result<double> value = work();
    row->daemon_cpu.push_back((site.cpu_seconds() - before) / (static_cast<double>(bytes) * 1e-9));
    return value;
  }

  /// What is being done, on a terminal.
  void say(const Row& row, std::size_t round) const;
  void add(Row row) {
    if (on_row_) on_row_(row);
    rows_.push_back(std::move(row));
  }
  /// Told of each row when it is found.
  void on_row(std::function<void(const Row&)> tell) { on_row_ = std::move(tell); }
  const std::vector<Row>& rows() const { return rows_; }

 private:
  const std::filesystem::path directory_;
  const Settings settings_;
  std::vector<File> files_;
  std::vector<Row> rows_;
  std::function<void(const Row&)> on_row_;
};

struct Line {
  const char* name;
  const char* text;
  Status (*run)(Bench&, const std::string& name);
};
const std::vector<Line>& all_lines();

// By file: lines_bytes.cc, lines_checkpoint.cc, lines_stall.cc, lines_names.cc, lines_copy.cc.
Status line_write(Bench& bench, const std::string& name);
Status line_read(Bench& bench, const std::string& name);
Status line_read_threads(Bench& bench, const std::string& name);
Status line_read_files(Bench& bench, const std::string& name);
Status line_read_direct(Bench& bench, const std::string& name);
Status line_random(Bench& bench, const std::string& name);
Status line_map_forward(Bench& bench, const std::string& name);
Status line_map_torch(Bench& bench, const std::string& name);
Status line_second_process(Bench& bench, const std::string& name);
Status line_eight_processes(Bench& bench, const std::string& name);
Status line_stall(Bench& bench, const std::string& name);
Status line_names(Bench& bench, const std::string& name);
Status line_copy(Bench& bench, const std::string& name);
Status line_copy_small(Bench& bench, const std::string& name);

}  // namespace starlane::cli::bench
