// How `starlane upgrade` reaches the holder of a mount: a socket without a place in the file
// system, named after the mount's device, which is one in the whole machine. Functions; any thread.
#pragma once
#include <string>

#include "common/status.h"
#include "common/unique_fd.h"

namespace starlane::fuse {

/// A listening socket, for the holder. device_number: as in mountinfo, "0:45".
Result<UniqueFd> listen_for_control(const std::string& device_number);

/// Asks the holder of the mount at `mountpoint` to go on with the program `binary`; waits until it
/// serves. The daemon's process id. Errors are sentences for the user.
Result<int> ask_upgrade(const std::string& mountpoint, const std::string& binary);

}  // namespace starlane::fuse
