// Branches as such: what volumes and images have in common when they come and go. Any thread.
#pragma once
#include <string_view>

#include "meta/context.h"
#include "meta/nodes.h"

namespace starlane::meta {

/// 1 to 63 of a-z, 0-9, '.', '_', '-', the first one a letter or digit. invalid, with a sentence
/// that names `what`.
Status check_library_name(std::string_view what, std::string_view name);

struct BranchIds {
  BranchId branch;
  ViewId view;
};
/// Numbers of a branch that is to be made; lost if it is not.
Result<BranchIds> new_branch_ids(Context& context);

/// Writes the head, the view and the root directory of a new branch.
void put_branch(Context& context, kv::Transaction& t, const BranchIds& ids, HeadRow head,
                const Root& root);

/// The branch is deleted from this commit on: nobody writes to it or reads it, sessions learn that
/// it is gone, and upkeep removes its rows.
Status start_deleting(kv::Transaction& t, BranchId branch);

}  // namespace starlane::meta
