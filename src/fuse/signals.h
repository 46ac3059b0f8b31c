// Which signals wait for a thread of an application, as /proc tells. The kernel says INTERRUPT
// once, for any signal; on a local file system only those that end the process cut a call short.
// Any thread.
#pragma once
#include <cstdint>
#include <string_view>

namespace starlane::fuse {

struct WaitingSignals {
  bool fatal = false;   // the process ends with them
  bool caught = false;  // it has a handler
};

/// thread: its number in this process's namespace. Fatal when there is no such thread, or /proc
/// does not tell.
WaitingSignals signals_waiting_for(std::uint32_t thread);
/// The same, of the text of its status file.
WaitingSignals signals_in(std::string_view status);

}  // namespace starlane::fuse
