// How large the machine is for this process: what its control group leaves it.
#pragma once
#include <cstdint>

namespace starlane {

struct HostSize {
  std::uint64_t memory_bytes = 0;  // 0: not known
  unsigned cores = 1;
};
HostSize host_size();

/// What can be used without swapping; 0 when it is not known.
std::uint64_t available_memory();

}  // namespace starlane
