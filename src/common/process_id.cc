#include "common/process_id.h"

#include <unistd.h>

#include <fstream>
#include <optional>
#include <sstream>

namespace starlane {
namespace {

std::string own_space() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, boot);
  char names[64];
  const ssize_t length = ::readlink("/proc/self/ns/pid", names, sizeof names);
  if (boot.empty() || length <= 0) return {};
  return boot + " " + std::string(names, static_cast<std::size_t>(length));
}

struct Seen {
  char state = 0;
  std::uint64_t threads = 0, started = 0;
};

/// None: there is no such process.
std::optional<Seen> look_at(std::uint64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::size_t name_end = text.rfind(')');  // a name may hold anything
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  Seen seen;
  fields >> seen.state;  // field 3 of proc(5)
  std::string skipped;
  for (int field = 4; field < 20; ++field) fields >> skipped;
  fields >> seen.threads >> skipped >> seen.started;
  return fields ? std::optional(seen) : std::nullopt;
}

}  // namespace

ProcessId this_process() {
  const auto pid = static_cast<std::uint64_t>(::getpid());
  const std::optional<Seen> seen = look_at(pid);
  return {own_space(), pid, seen ? seen->started : 0};
}

bool is_over(const ProcessId& process) {
  static const std::string space = own_space();
  if (process.space.empty() || process.space != space || process.started == 0) return false;
  const std::optional<Seen> seen = look_at(process.pid);
  if (!seen || seen->started != process.started) return true;
  // A main thread that ended leaves its name to the others.
  return (seen->state == 'Z' || seen->state == 'X') && seen->threads <= 1;
}

}  // namespace starlane
