#include "meta/escrow.h"

#include <algorithm>

namespace starlane::meta {
namespace {

std::string lane_of(BranchId branch, SessionId session) {
  return accumulator_key(branch, InodeId{}, What::escrow, session.value);
}
std::string total_of(BranchId branch, What what) {
  return accumulator_key(branch, InodeId{}, what);
}

std::uint64_t positive(std::int64_t total) {
  return total > 0 ? static_cast<std::uint64_t>(total) : 0;
}

/// The session has so much less: never more than it has.
void take(kv::Transaction& t, BranchId branch, SessionId session, std::int64_t bytes) {
  t.add_limited(lane_of(branch, session), bytes, 0);
  t.add(total_of(branch, What::escrow_all), -bytes);
}

}  // namespace

Result<Usage> read_usage(kv::Transaction& t, BranchId branch) {
  const std::vector<std::int64_t> totals =
      SL_TRY(t.totals({total_of(branch, What::bytes), total_of(branch, What::escrow_all),
                       total_of(branch, What::inodes)}));
  return Usage{positive(totals[0] - totals[1]), positive(totals[1]), positive(totals[2])};
}

Result<std::uint64_t> read_escrow(kv::Transaction& t, BranchId branch, SessionId session) {
  return positive(-SL_TRY(t.total(lane_of(branch, session))));
}

Result<std::uint64_t> charge_from_escrow(Change& change, std::int64_t bytes) {
  std::uint64_t taken = 0;
  if (bytes > 0 && change.head.quota_bytes != 0 && change.access.session) {
    const std::uint64_t has = SL_TRY(read_escrow(change.t, change.branch(), change.access.session));
    taken = std::min(has, static_cast<std::uint64_t>(bytes));
  }
  const auto paid = static_cast<std::int64_t>(taken);
  if (paid > 0) take(change.t, change.branch(), change.access.session, paid);
  change.charge(bytes - paid, 0);
  return taken;
}

Status return_escrow(kv::Transaction& t, BranchId branch, SessionId session) {
  const auto has = static_cast<std::int64_t>(SL_TRY(read_escrow(t, branch, session)));
  if (has == 0) return {};
  take(t, branch, session, has);
  t.add(total_of(branch, What::bytes), -has);
  return {};
}

}  // namespace starlane::meta
