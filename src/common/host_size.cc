#include "common/host_size.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <string>

namespace starlane {
namespace {

std::uint64_t memory_figure(const char* key) {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;) {
    std::uint64_t kib = 0;
    if (word == key && file >> kib) return kib << 10;
  }
  return 0;
}

/// The file of that name of this process's control group and of each above it, up to the root.
void each_group(const char* name, const std::function<void(std::ifstream&)>& look) {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.rfind("0::", 0) != 0) continue;
    for (std::string path = line.substr(3);;) {
      std::ifstream file("/sys/fs/cgroup" + path + "/" + name);
      look(file);
      const std::size_t slash = path.rfind('/');
      if (path.empty() || slash == std::string::npos) break;
      path.resize(slash);
    }
  }
}

std::uint64_t memory_limit() {
  std::uint64_t limit = UINT64_MAX;
  each_group("memory.max", [&](std::ifstream& file) {
    std::uint64_t bytes = 0;
    if (file >> bytes) limit = std::min(limit, bytes);
  });
  return limit;
}

unsigned usable_cores() {
  cpu_set_t set;
  unsigned cores =
      ::sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<unsigned>(CPU_COUNT(&set)) : 1;
  each_group("cpu.max", [&](std::ifstream& file) {
    std::uint64_t quota = 0, period = 0;  // microseconds; "max" instead of a quota: no limit
    if (file >> quota >> period && period != 0)
      cores = std::min(cores, static_cast<unsigned>((quota + period - 1) / period));
  });
  return std::max(cores, 1U);
}

}  // namespace

HostSize host_size() {
  return {std::min(memory_figure("MemTotal:"), memory_limit()), usable_cores()};
}

std::uint64_t available_memory() { return memory_figure("MemAvailable:"); }

}  // namespace starlane
