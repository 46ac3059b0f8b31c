// The trash goes when its time has come, or sooner when the targets run full: the oldest first.
// Any thread.
#pragma once
#include "meta/context.h"

namespace starlane::pb {
class HousekeepingReply;
}

namespace starlane::meta {

/// One bounded step over all branches, adding to the figures of `reply`.
Status empty_trash(Context& context, pb::HousekeepingReply* reply);

}  // namespace starlane::meta
