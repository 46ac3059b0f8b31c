// The one table between Errc and errno, used where our calls meet the kernel's or C's. Pure
// functions; any thread.
#pragma once
#include <string_view>

#include "common/status.h"

namespace starlane {

/// The errno an application sees for `code`: 0 for ok. Reactions of our own come out as EBUSY,
/// ETIMEDOUT or EIO.
int errno_of(Errc code);

/// The Errc of an errno from a system call; io for one that has none of its own.
Errc errc_of(int error_number);

/// Status of a failed system call: "<what>: <strerror>".
Status system_error(std::string_view what, int error_number);

}  // namespace starlane
