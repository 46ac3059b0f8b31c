// A mount that outlives its daemon, for those who start roles: the holder, which becomes the parent
// of this program started once more, and the daemon's side of it (src/fuse/holder).
#pragma once
#include "fuse/holder/control.h"
#include "fuse/holder/held.h"
#include "fuse/holder/holder.h"

namespace starlane::wire {

using fuse::ask_upgrade;
using fuse::Held;
using fuse::Holder;

}  // namespace starlane::wire
