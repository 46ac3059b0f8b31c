// Where a benchmark works: a directory of its own, and a process of its own for all that it does,
// so that whatever happens to it (an error, Ctrl-C, a crash) everything that it started is stopped,
// what it mounted is unmounted, and what it wrote is removed. One thread, before any other is
// started.
#pragma once
#include <filesystem>
#include <functional>

#include "common/status.h"

namespace starlane::cli::bench {

/// Runs `work` in a child with a new directory under `where`, then clears up. The status of `work`,
/// or that it was interrupted. What killed runs left under `where` is removed first.
Status in_workplace(const std::filesystem::path& where,
                    const std::function<Status(const std::filesystem::path&)>& work);

}  // namespace starlane::cli::bench
