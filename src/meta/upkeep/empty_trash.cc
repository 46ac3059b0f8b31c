// Also trash_empty, by which a user does the same at once.
#include "meta/upkeep/empty_trash.h"

#include <algorithm>
#include <map>

#include "meta/ops/ops.h"
#include "meta/trash.h"
#include "meta/upkeep/walk.h"

namespace starlane::meta {
namespace {

constexpr std::size_t kPage = 256;          // thrown away by one transaction
constexpr std::size_t kMaxThrown = 4'096;   // by one step
constexpr std::uint64_t kFreeOfTotal = 20;  // a twentieth of the targets' space is kept free

/// throw_away for those of `keys` that are still there, whatever the state of the branch. How many
/// it were.
Result<std::size_t> throw_away_all(Context& context, BranchId branch,
                                   const std::vector<std::string>& keys) {
  std::size_t thrown = 0;
  const auto throw_some = [&](Change& change) -> Status {
    thrown = 0;
    const Rows rows = SL_TRY(change.t.get_many(keys));
    for (const std::optional<kv::Row>& row : rows) {
      if (!row) continue;
      const Trashed trashed = SL_TRY(trashed_of(*row));
      throw_away(change, trashed);
      ++thrown;
    }
    return {};
  };
  SL_TRY(change_inside(context, branch, throw_some));
  return thrown;
}

/// What one step throws away, by branch.
using Chosen = std::map<BranchId, std::vector<std::string>>;

template <typename Visit>
Status each_branch(kv::Transaction& t, const Visit& visit) {
  BranchId first;
  for (;;) {
    const std::vector<BranchId> branches = SL_TRY(branches_from(t, first, kBranchPage));
    for (const BranchId branch : branches) SL_TRY(visit(branch));
    if (branches.size() < kBranchPage) return {};
    first = BranchId{branches.back().value + 1};
  }
}

Result<std::vector<kv::Row>> oldest_rows(kv::Transaction& t, BranchId branch, std::size_t limit) {
  const KeyRange range = table_range(Space::branch, branch, Table::trashed);
  return t.scan({range.first, range.last, limit});
}

Result<std::vector<Trashed>> oldest(kv::Transaction& t, BranchId branch, std::size_t limit) {
  const std::vector<kv::Row> rows = SL_TRY(oldest_rows(t, branch, limit));
  std::vector<Trashed> all;
  for (const kv::Row& row : rows) all.push_back(SL_TRY(trashed_of(row)));
  return all;
}

class Step {
 public:
  Step(Context& context, pb::HousekeepingReply* reply)
      : context_(context), reply_(reply), now_ns_(to_ns(context.clock.wall())) {}

  Status run() {
    const auto choose_some = [this](kv::Transaction& t) -> Status {
      chosen_.clear();
      count_ = 0;
      SL_TRY(choose_expired(t));
      return count_ > 0 ? Status() : choose_for_space(t);
    };
    SL_TRY(context_.read(choose_some));
    for (const auto& [branch, keys] : chosen_) {
      const std::size_t thrown = SL_TRY(throw_away_all(context_, branch, keys));
      reply_->set_removed_rows(reply_->removed_rows() + thrown);
      if (thrown == kPage) reply_->set_more(true);
    }
    return {};
  }

 private:
  void choose(const Trashed& trashed) {
    chosen_[trashed.key.branch].push_back(
        trashed_key(trashed.key.branch, trashed.key.deleted_ns, trashed.key.inode));
    ++count_;
  }

  Status choose_expired(kv::Transaction& t) {
    return each_branch(t, [&](BranchId branch) -> Status {
      if (count_ >= kMaxThrown) return {};
      const std::vector<Trashed> first = SL_TRY(oldest(t, branch, 1));
      if (first.empty()) return {};
      const HeadRow head = SL_TRY(read_head(t, branch));
      const auto expired = [&](const Trashed& trashed) {
        return now_ns_ >= trashed.key.deleted_ns + kept_for_ns(head);
      };
      if (head.state == BranchState::deleting || !expired(first.front())) return {};
      const std::vector<Trashed> some = SL_TRY(oldest(t, branch, kPage));
      for (const Trashed& trashed : some) {
        if (!expired(trashed)) return {};
        choose(trashed);
      }
      return {};
    });
  }

  /// Bytes that should be free on the targets, beyond those that are and those that will be when
  /// the blocks of dead slices are removed.
  Result<std::uint64_t> missing_space(kv::Transaction& t) {
    const Capacity::Space space = context_.capacity.sum();
    const std::uint64_t wanted = space.total_bytes / kFreeOfTotal;
    if (space.free_bytes >= wanted) return 0;
    std::int64_t coming = 0;
    const auto add_held = [&](BranchId branch) -> Status {
      coming += SL_TRY(t.total(accumulator_key(branch, InodeId{}, What::held)));
      return {};
    };
    SL_TRY(each_branch(t, add_held));
    const std::uint64_t soon =
        space.free_bytes + static_cast<std::uint64_t>(std::max<std::int64_t>(coming, 0));
    return soon < wanted ? wanted - soon : 0;
  }

  /// The oldest of all volumes, until their bytes suffice: of what nobody can be about to open any
  /// more, so that it is free, and counted as such, before the next step.
  Status choose_for_space(kv::Transaction& t) {
    std::uint64_t missing = SL_TRY(missing_space(t));
    if (missing == 0) return {};
    std::vector<Trashed> all;
    const auto add_oldest = [&](BranchId branch) -> Status {
      std::vector<Trashed> some = SL_TRY(oldest(t, branch, kPage));
      for (Trashed& trashed : some) all.push_back(std::move(trashed));
      return {};
    };
    SL_TRY(each_branch(t, add_oldest));
    std::sort(all.begin(), all.end(), [](const Trashed& a, const Trashed& b) {
      return a.key.deleted_ns < b.key.deleted_ns;
    });
    const auto settled =
        2 * static_cast<std::uint64_t>(Nanoseconds(context_.options.heartbeat).count());
    for (const Trashed& trashed : all) {
      if (missing == 0 || count_ >= kPage) return {};
      if (now_ns_ < trashed.row.ready_ns + settled) continue;
      choose(trashed);
      missing -= std::min(missing, trashed.row.bytes);
    }
    return {};
  }

  Context& context_;
  pb::HousekeepingReply* reply_;
  const std::uint64_t now_ns_;
  Chosen chosen_;
  std::size_t count_ = 0;
};

}  // namespace

Status empty_trash(Context& context, pb::HousekeepingReply* reply) {
  return Step(context, reply).run();
}

Status op_trash_empty(Context& context, const Call&, const pb::TrashEmptyRequest& request,
                      pb::TrashEmptyReply* reply) {
  reply->Clear();
  const BranchId branch{request.branch()};
  if (request.items_size() > static_cast<int>(kPage))
    return {Errc::invalid, "at most 256 things are thrown away by one call"};
  std::vector<std::string> keys;
  for (const pb::TrashItem& item : request.items())
    keys.push_back(trashed_key(branch, item.deleted_ns(), InodeId{item.inode()}));
  const auto list_oldest = [&](kv::Transaction& t) -> Status {
    SL_TRY(read_head(t, branch));
    if (request.items_size() > 0) return {};
    keys.clear();
    const std::vector<kv::Row> rows = SL_TRY(oldest_rows(t, branch, kPage));
    for (const kv::Row& row : rows) keys.push_back(row.key);
    return {};
  };
  SL_TRY(context.read(list_oldest));
  reply->set_emptied(SL_TRY(throw_away_all(context, branch, keys)));
  reply->set_more(request.items_size() == 0 && keys.size() == kPage);
  return {};
}

}  // namespace starlane::meta
