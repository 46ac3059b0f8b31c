// A Starlane directory (`--dir`): identity, key, metadata, default block target, sockets and logs
// of one site on this machine. The one place that knows its layout. Values; creating and locking
// block on the disk.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "common/unique_fd.h"

namespace starlane::wire {

class Site {
 public:
  /// Opens `directory`, and makes it a Starlane directory if it is empty or missing. Refuses one
  /// that holds other things, or a newer format. Errors: exists, unsupported, access, io: one
  /// sentence each.
  static Result<Site> open_or_create(const std::filesystem::path& directory);
  /// Opens what must be a Starlane directory already.
  static Result<Site> open(const std::filesystem::path& directory);

  const std::filesystem::path& directory() const { return directory_; }
  const std::string& cluster() const { return cluster_; }  // uuid
  std::filesystem::path key_file() const { return directory_ / "key"; }
  std::filesystem::path metadata() const { return directory_ / "meta"; }
  std::filesystem::path default_target() const { return directory_ / "store"; }
  std::filesystem::path log(const std::string& role) const {
    return directory_ / "log" / (role + ".log");
  }
  /// "unix:…" endpoint of a role; in a short directory of its own when the path would not fit a
  /// socket address.
  std::string endpoint(const std::string& role) const;
  /// "unix:…" endpoint of the console of a process (console.h).
  std::string console(const std::string& process) const { return endpoint(kConsole + process); }
  /// Process and endpoint of every console whose socket is there, dead ones too.
  std::vector<std::pair<std::string, std::string>> consoles() const;
  /// Where a running role says what it is doing, as JSON.
  std::filesystem::path state_file(const std::string& role) const {
    return directory_ / "run" / (role + ".json");
  }

  /// Held for as long as the descriptor lives: one process a role and site. Errors: busy, with the
  /// holder's pid.
  Result<UniqueFd> lock(const std::string& role) const;

 private:
  static constexpr const char* kConsole = "metrics-";
  std::string short_name() const;  // begins the names of sockets in /tmp

  std::filesystem::path directory_;
  std::string cluster_;
};

}  // namespace starlane::wire
