// How fast this machine's kernel is with a FUSE server that answers from memory and does nothing
// else, mounted as the real one is: what the figures of the real one are compared with. Blocks for
// some seconds; one measurement at a time.
#pragma once
#include <cstdint>
#include <string>

#include "common/status.h"

namespace starlane::fuse {

struct CeilingOptions {
  std::uint64_t bytes = std::uint64_t{1} << 30;  // of the file; twice that of memory is needed
  int runs = 3;                                  // the median counts
  std::uint32_t max_write = 1 << 20;
  std::uint32_t read_ahead_kib = 4096;
  std::size_t idle_threads = 4;
  std::string scratch = "/tmp";  // where the mountpoint is made
};

/// Gigabytes (10^9) per second; 0: could not be measured here. A client process reads or writes the
/// whole file, cold.
struct Ceiling {
  double read_cached = 0;           // read(), 1 MiB, through the page cache
  double read_cached_parallel = 0;  // the same by four processes on one descriptor
  double read_direct = 0;           // O_DIRECT, 4 MiB
  double map_cached = 0;            // mapped through the page cache, copied out
  double map_passthrough = 0;       // mapped from a huge-page file through passthrough, copied out
  double write = 0;                 // write(), 1 MiB, a new file
  double memory_copy = 0;           // memcpy of the same bytes, for scale
  double seconds_per_open = 0;      // open and close of a file
};

/// Errors as Session::start; no_memory.
Result<Ceiling> measure_ceiling(const CeilingOptions& options);

}  // namespace starlane::fuse
