// Keeps the roles of `up --separate` running as processes of their own: started in order, restarted
// with back-off when one dies, stopped in reverse. The thread that runs it owns it.
#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "common/unique_fd.h"
#include "wire/site.h"

namespace starlane::wire {

/// How a role tells whoever started it that it serves, or why it cannot: one line on the descriptor
/// of --ready-fd.
void tell_ready(int ready_fd, const Status& status);

class Supervisor {
 public:
  explicit Supervisor(const Site& site) : site_(site) {}
  ~Supervisor() { stop(); }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// Starts `starlane ARGUMENTS… --ready-fd N` with its log in the site, and waits until it serves.
  /// The role's own sentence when it cannot.
  Status start(const std::string& role, std::vector<std::string> arguments);

  /// Restarts what dies until SIGTERM or SIGINT (both blocked in the caller).
  void watch();

  /// SIGTERM to each, the last started first, and SIGKILL to one that takes longer than `patience`.
  void stop(Nanoseconds patience = std::chrono::seconds(30));

  /// role and process, for the state file.
  std::vector<std::pair<std::string, pid_t>> children() const;

 private:
  struct Child {
    std::string role;
    std::vector<std::string> arguments;
    pid_t pid = -1;
    Nanoseconds started{0};
    Nanoseconds restart_at{0};  // when dead
    Nanoseconds back_off{0};
    UniqueFd ready;  // of a restarted one, until it has spoken
  };

  Status spawn(Child& child);
  void reap();
  void restart_due();
  void write_state() const;

  const Site site_;
  std::vector<Child> children_;
};

}  // namespace starlane::wire
