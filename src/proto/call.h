// What travels with every request, whoever serves it: who asks, how long they wait, and the id that
// follows the work through logs of all processes.
#pragma once
#include <cstdint>

#include "common/clock.h"
#include "common/ids.h"

namespace starlane {

/// Value; passed by reference to every service call.
struct Call {
  SessionId session;            // none for calls outside a session
  std::uint64_t request = 0;    // of this session: names the outcome of a non-idempotent operation
  std::uint64_t trace = 0;      // follows the work through every process
  std::uint64_t map_epoch = 0;  // the caller's cluster map; 0: does not depend on one
  std::uint64_t attachment_epoch = 0;  // of the branch written to; 0: none
  Deadline deadline = Deadline::never();
};

}  // namespace starlane
