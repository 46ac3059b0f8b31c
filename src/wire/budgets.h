// What the roles may take when nobody says otherwise, by the size of the machine: the one place
// where memory and threads are shared out. Together the caches stay below two fifths of memory, on
// 4 GiB and 2 cores as on 2 TiB and 128. docs/operating.md has the table.
#pragma once
#include <cstddef>
#include <cstdint>

#include "common/host_size.h"

namespace starlane::wire {

struct Budgets {
  std::uint64_t meta_cache_bytes = 0;
  std::uint64_t node_cache_bytes = 0;
  std::uint64_t block_cache_bytes = 0;
  std::uint64_t dirty_bytes = 0;
  std::uint64_t tree_names_bytes = 0;
  std::size_t workers = 0;  // calls that a server carries out at once
  std::size_t fetch_threads = 0;
};

Budgets budgets_for(const HostSize& host);
/// Those of this machine, as it was when first asked.
const Budgets& own_budgets();

}  // namespace starlane::wire
