#include "wire/budgets.h"

#include <algorithm>

#include "common/bytes.h"

namespace starlane::wire {
namespace {

constexpr std::uint64_t kGuess = 4_GiB;  // of memory, where that is not known

std::uint64_t part(std::uint64_t memory, std::uint64_t divisor, std::uint64_t least,
                   std::uint64_t most) {
  return std::clamp(memory / divisor, least, most) / 1_MiB * 1_MiB;
}

}  // namespace

Budgets budgets_for(const HostSize& host) {
  const std::uint64_t memory = host.memory_bytes != 0 ? host.memory_bytes : kGuess;
  return {.meta_cache_bytes = part(memory, 64, 32_MiB, 32_GiB),
          .node_cache_bytes = part(memory, 4, 64_MiB, UINT64_MAX),
          .block_cache_bytes = part(memory, 32, 64_MiB, 16_GiB),
          .dirty_bytes = part(memory, 64, 128_MiB, 1_GiB),
          .tree_names_bytes = part(memory, 32, 64_MiB, 16_GiB),
          .workers = std::clamp<std::size_t>(4 * host.cores, 16, 256),
          .fetch_threads = std::clamp<std::size_t>(2 * host.cores, 8, 64)};
}

const Budgets& own_budgets() {
  static const Budgets budgets = budgets_for(host_size());
  return budgets;
}

}  // namespace starlane::wire
