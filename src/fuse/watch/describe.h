// A request of the kernel as an entry of the access log. Pure functions; any thread.
#pragma once
#include "client/access_entry.h"
#include "client/vfs.h"
#include "fuse/decode.h"

namespace starlane::fuse {

/// Operation, paths, offsets; asks the Vfs where nodes lie, so before the operation changes that.
/// Time and outcome are the caller's to add.
client::AccessEntry describe(const Request& request, client::Vfs& vfs);

}  // namespace starlane::fuse
