// Paths of unix sockets, which the kernel keeps short.
#pragma once
#include <string>

#include "common/status.h"

namespace starlane::metrics {

/// invalid: too long.
Status fits_socket(const std::string& path);
/// A process answers there.
bool somebody_serves(const std::string& path);

}  // namespace starlane::metrics
