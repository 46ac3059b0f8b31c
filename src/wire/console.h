// What a process of a site shows of itself while it runs: `/metrics` for Prometheus on a unix
// socket in the site's run directory and, where wanted, on TCP; and on the unix socket alone what
// commands ask of a mount (`/profile`, `/access-log`). Started and destroyed by one thread.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "wire/roles.h"

namespace starlane::wire {

class Console {
 public:
  struct Options {
    std::string name;            // of the process: "up", "meta", …
    const Site* site = nullptr;  // null: no socket of a site's
    std::string address;         // --metrics: "", PORT or HOST:PORT
    std::vector<std::pair<std::string, Role*>> roles;
    std::vector<std::pair<std::string, rpc::Server*>> servers;
    Network* network = nullptr;
  };
  /// Everything named outlives it. Errors: the address cannot be had, as one sentence.
  static Result<std::unique_ptr<Console>> start(Options options);
  virtual ~Console() = default;
  /// Where it serves: "unix:/path", "HOST:PORT".
  virtual const std::vector<std::string>& places() const = 0;
};

/// A process of the site that shows itself.
struct Shown {
  std::string name;
  std::string place;  // "unix:/path"
};
std::vector<Shown> consoles_of(const Site& site);

/// A page of a console, asked from another process: see metrics/page_client.h.
Result<std::string> ask_console(const std::string& place, const std::string& target,
                                const std::string& method = "GET");
/// A text as it may stand in a query of `target`.
std::string in_query(const std::string& text);

}  // namespace starlane::wire
