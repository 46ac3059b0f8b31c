// fsck of a running site, for the command. One run, one thread.
#pragma once
#include "keeper/fsck.h"
#include "wire/connection.h"

namespace starlane::wire {

Result<keeper::FsckReport> fsck(Connection& connection, const keeper::FsckOptions& options,
                                const keeper::FsckTold& told);

}  // namespace starlane::wire
