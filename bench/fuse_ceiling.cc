// What a FUSE server that answers from memory reaches on this machine: the ceiling of every figure
// of the mount.
//   fuse_ceiling [MIB] [RUNS] [MAX_WRITE_KIB] [READ_AHEAD_KIB] [IDLE_THREADS]
#include <cstdio>
#include <cstdlib>

#include "common/log.h"
#include "fuse/ceiling.h"

int main(int count, char** words) {
  using starlane::fuse::Ceiling;
  starlane::start_logging({.role = "bench", .file = {}, .level = "warn"});
  starlane::fuse::CeilingOptions options;
  const auto number = [&](int i, std::uint64_t otherwise) {
    return count > i ? std::strtoull(words[i], nullptr, 10) : otherwise;
  };
  options.bytes = number(1, 1024) << 20;
  options.runs = static_cast<int>(number(2, 3));
  options.max_write = static_cast<std::uint32_t>(number(3, 1024) << 10);
  options.read_ahead_kib = static_cast<std::uint32_t>(number(4, options.read_ahead_kib));
  options.idle_threads = number(5, options.idle_threads);
  const auto measured = starlane::fuse::measure_ceiling(options);
  if (!measured.ok()) {
    std::fprintf(stderr, "fuse_ceiling: %s\n", measured.status().text().c_str());
    return 1;
  }
  const Ceiling& c = measured.value();
  const struct {
    const char* what;
    double rate;
  } rows[] = {{"read() of 1 MiB through the page cache", c.read_cached},
              {"the same, 4 processes on one descriptor", c.read_cached_parallel},
              {"O_DIRECT reads of 4 MiB", c.read_direct},
              {"mmap through the page cache, copied out", c.map_cached},
              {"mmap through passthrough, copied out", c.map_passthrough},
              {"write() of 1 MiB, a new file", c.write},
              {"memcpy of the same bytes", c.memory_copy}};
  std::printf("%-44s %8s %8s\n", "", "GB/s", "/memcpy");
  for (const auto& row : rows) {
    std::printf("%-44s %8.2f %8.2f\n", row.what, row.rate,
                c.memory_copy > 0 ? row.rate / c.memory_copy : 0);
  }
  std::printf("%-44s %8.1f us\n", "open and close", c.seconds_per_open * 1e6);
  return 0;
}
