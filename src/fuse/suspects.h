// Requests that may be what daemons of a mount die of: the kernel sends again what a dead one had
// not answered, so one that crashes whoever serves it would do so for ever. Each that is sent again
// is written down while it is served; one that was being served in several crashes is not served
// any more. Deaths that came from outside (kill -9, a hang) say nothing of it. Any thread.
#pragma once
#include <cstdint>

#include "client/takeover/ledger.h"

namespace starlane::fuse {

class Suspects {
 public:
  /// The first crash is not among them: before it, the request had not been sent again.
  static constexpr std::uint32_t kCrashes = 2;

  /// ledger: outlives it; null: nothing is ever suspected. after_crash: the daemon before crashed,
  /// and so what it was serving then is counted.
  Suspects(client::Ledger* ledger, bool after_crash);

  /// Before a request that was sent again is served; false: it must not be.
  bool begin(std::uint64_t unique);
  /// It is answered.
  void end(std::uint64_t unique);

 private:
  client::Ledger* const ledger_;
};

}  // namespace starlane::fuse
