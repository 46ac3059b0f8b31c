// Going over the rows of many branches in bounded steps: what every kind of upkeep begins with. Any
// thread.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "meta/context.h"

namespace starlane::meta {

/// All branches, in order, from `first` on; at most `limit`.
Result<std::vector<BranchId>> branches_from(kv::Transaction& t, BranchId first, std::size_t limit);
inline constexpr std::size_t kBranchPage = 1'024;

struct Walk {
  BranchId only;       // 0: all branches
  std::string cursor;  // the last key of the step before; empty: from the start
  std::size_t limit = 0;
};
struct Walked {
  std::vector<kv::Row> rows;
  std::string cursor;  // empty: that was all
};
/// The next rows of a table, over branches in order, as one snapshot sees them. `invalid` for a
/// cursor that is not one.
Result<Walked> walk_table(Context& context, Table table, const Walk& walk);

/// Deletes up to `limit` rows of a range: how many it were.
Result<std::size_t> delete_rows(kv::Transaction& t, const KeyRange& range, std::size_t limit);

/// A change of a branch by the server itself, whatever its state: guards the head, no session, no
/// outcome. Nothing happens if the branch is gone.
Status change_inside(Context& context, BranchId branch, const std::function<Status(Change&)>& body);

}  // namespace starlane::meta
