// What a program gives a file or directory besides content: mode, owner and times, by a request of
// its own or with a commit. Inside a transaction; any thread.
#pragma once
#include "common/status.h"
#include "meta/context.h"
#include "meta/links.h"
#include "proto/meta.pb.h"

namespace starlane::meta {

/// not_permitted where the flags of the row forbid it.
Status may_be_given(const pb::SetAttributesRequest& request, const InodeRow& row);
/// Into the node, not put yet; an access list follows the mode. What else the request says (length,
/// flags, ctime) is not looked at.
Status give(Change& change, const pb::SetAttributesRequest& request, Node& node);

}  // namespace starlane::meta
