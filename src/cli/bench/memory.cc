#include "cli/bench/memory.h"

#include <algorithm>
#include <thread>
#include <vector>

namespace starlane::cli::bench {

void touch_memory(std::uint64_t bytes) {
  void* const at =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return;
  ::madvise(at, bytes, MADV_HUGEPAGE);
  const std::size_t threads = std::clamp(std::thread::hardware_concurrency(), 1U, 16U);
  const std::uint64_t share = round_up(divide_up(bytes, threads), 2_MiB);
  std::vector<std::thread> running;
  for (std::uint64_t from = 0; from < bytes; from += share)
    running.emplace_back([from, to = std::min(bytes, from + share), base = static_cast<char*>(at)] {
      for (std::uint64_t offset = from; offset < to; offset += 4_KiB) base[offset] = 1;
    });
  for (std::thread& thread : running) thread.join();
  ::munmap(at, bytes);
}

}  // namespace starlane::cli::bench
