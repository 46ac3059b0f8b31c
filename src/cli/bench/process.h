// Processes that a benchmark starts: this very binary in another role, or a tool of the system.
// They die with the process that started them. One thread.
#pragma once
#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/status.h"

namespace starlane::cli::bench {

using Words = std::vector<std::string>;

/// A `starlane` process that serves until it is stopped.
class Service {
 public:
  /// Starts `starlane WORDS… --ready-fd N`, what it prints going to `log`; returns once it serves.
  /// Errors: its own sentence.
  static Result<Service> start(Words words, const std::filesystem::path& log);
  Service() = default;
  Service(Service&& other) noexcept;
  Service& operator=(Service&& other) noexcept;
  ~Service();

  bool running() const { return pid_ > 0; }
  pid_t pid() const { return pid_; }
  /// SIGTERM, and SIGKILL to one that has not ended within half a minute, which is an error.
  Status stop();

 private:
  explicit Service(pid_t pid) : pid_(pid) {}
  pid_t pid_ = -1;
};

/// Runs `starlane WORDS…` and answers what it printed; its own sentence when it fails.
Result<std::string> starlane(Words words);
/// Runs a program found in PATH; its last line of error output when it fails.
Status run_tool(const Words& words);

/// User and system time of a process, of those that it started, and of theirs, seconds; 0 for one
/// that is gone.
double cpu_seconds_of(pid_t pid);

}  // namespace starlane::cli::bench
