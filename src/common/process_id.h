// Names a process among all that a host has run since it was started, so that another process there
// can tell when it is over.
#pragma once
#include <cstdint>
#include <string>

namespace starlane {

struct ProcessId {
  std::string space;  // of the host and the pid namespace: others do not see it
  std::uint64_t pid = 0;
  std::uint64_t started = 0;  // ticks since the host's start: pids are given again
};

ProcessId this_process();

/// Known to be over. False too for one of another space, of which nothing can be said.
bool is_over(const ProcessId& process);

}  // namespace starlane
