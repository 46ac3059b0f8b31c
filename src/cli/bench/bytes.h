// The measurements that move bytes by read() and write(): each takes paths, on any file system, and
// checks what it read. Blocking; one call at a time (they use the whole machine).
#pragma once
#include <filesystem>
#include <functional>
#include <vector>

#include "common/bytes.h"
#include "common/status.h"

namespace starlane::cli::bench {

/// Runs work(0) … work(threads - 1) at once, and waits; the first failure.
Status in_threads(std::size_t threads, const std::function<Status(std::size_t)>& work);

/// Seconds that `work` took, or its failure.
Result<double> timed(const std::function<Status()>& work);

/// `amount` a second, of what `timed` answered.
Result<double> per_second(double amount, const Result<double>& seconds);

struct ReadPlan {
  std::vector<std::filesystem::path> files;  // one: shared by the threads, each a part of its own
  std::vector<std::uint64_t> seeds;          // of the files
  std::size_t threads = 1;                   // several files: one each
  std::size_t step = 1_MiB;                  // bytes of a call
  bool direct = false;                       // O_DIRECT
};
/// Reads all of the files once; bytes a second, opens included.
Result<double> read_files(const ReadPlan& plan);

/// Writes a new file of `length` bytes in calls of 1 MiB; with `durable`, fsync. Bytes a second.
struct WritePlan {
  std::filesystem::path file;
  std::uint64_t length = 0;
  std::uint64_t seed = 0;
  bool durable = true;
};
Result<double> write_file(const WritePlan& plan);

/// Reads of 4 KiB at random places of a file, each checked; reads a second.
struct RandomPlan {
  std::filesystem::path file;
  std::uint64_t seed = 0;
  std::size_t reads = 0;
  std::size_t threads = 1;
  bool direct = false;  // O_DIRECT
};
Result<double> random_reads(const RandomPlan& plan);

}  // namespace starlane::cli::bench
