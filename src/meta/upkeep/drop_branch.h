// The end of a deleted volume or data set: its references die like any other, and when their blocks
// are gone its rows go. Any thread.
#pragma once
#include "meta/context.h"

namespace starlane::pb {
class HousekeepingReply;
}

namespace starlane::meta {

/// One bounded step for each branch that is being deleted, adding to the figures of `reply`.
Status drop_branches(Context& context, pb::HousekeepingReply* reply);

}  // namespace starlane::meta
