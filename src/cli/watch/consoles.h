// The running processes of a site, or one elsewhere, as `stats`, `profile` and `access-log` ask
// them. One thread.
#pragma once
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/watch/page.h"
#include "wire/console.h"

namespace starlane::cli {

class Consoles {
 public:
  /// at: HOST:PORT of one process; empty: all of the site of --dir.
  Consoles(const Program& program, std::string at) : program_(program), at_(std::move(at)) {}

  /// All metrics together. unavailable: nobody answers.
  Result<Page> metrics() const;

  struct Answer {
    std::string process;
    std::string body;
  };
  /// Of each process that has such a page. unavailable: nobody answers, or none has.
  Result<std::vector<Answer>> ask(const std::string& target, const std::string& method) const;

 private:
  Result<std::vector<wire::Shown>> places() const;

  const Program& program_;
  const std::string at_;
};

/// Sleeps; false when SIGINT or SIGTERM came: the command ends well. They are blocked from the
/// first call on.
bool sleep_or_stop(Nanoseconds duration);

}  // namespace starlane::cli
