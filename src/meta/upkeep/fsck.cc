// fsck_references: every reference to a slice, and whatever rows contradict each other, page by
// page.
#include <algorithm>
#include <set>

#include "meta/library/library_rows.h"
#include "meta/members/attachments.h"
#include "meta/ops/ops.h"
#include "meta/upkeep/fsck_branch.h"
#include "meta/upkeep/walk.h"

namespace starlane::meta {
namespace {

constexpr std::uint32_t kMaxPage = 4'096;
constexpr std::size_t kMaxRecords = 200'000;

/// Branches that volumes and data sets name; each must exist.
Status check_records(kv::Transaction& t, std::set<BranchId>* named, pb::FsckReply* reply) {
  const auto check = [&](const Result<BranchId>& branch) -> Status {
    if (!branch.ok()) {
      reply->add_problems("a record of a volume or data set cannot be read: " +
                          branch.status().text());
      return {};
    }
    if (!named->insert(*branch).second) {
      reply->add_problems("two records name branch " + std::to_string(branch->value));
    }
    if (!SL_TRY(t.get(head_key(*branch)))) {
      reply->add_problems("a record names branch " + std::to_string(branch->value) +
                          ", which does not exist");
    }
    return {};
  };
  for (const kv::Row& row :
       SL_TRY(scan_all(t, table_range(Space::system, BranchId{}, Table::volume), kMaxRecords))) {
    const Result<VolumeRow> volume = VolumeRow::decode(row.value);
    SL_TRY(
        check(volume.ok() ? Result<BranchId>(volume->branch) : Result<BranchId>(volume.status())));
  }
  for (const kv::Row& row :
       SL_TRY(scan_all(t, table_range(Space::system, BranchId{}, Table::image), kMaxRecords))) {
    const Result<ImageRow> image = ImageRow::decode(row.value);
    SL_TRY(check(image.ok() ? Result<BranchId>(image->branch) : Result<BranchId>(image.status())));
  }
  return {};
}

Status check_heads(kv::Transaction& t, const std::set<BranchId>& named, pb::FsckReply* reply) {
  for (const BranchId branch : SL_TRY(branches_from(t, BranchId{}, kMaxRecords))) {
    const std::string what = "branch " + std::to_string(branch.value);
    if (!named.contains(branch)) reply->add_problems(what + " belongs to no volume or data set");
    const Result<HeadRow> head = read_head(t, branch);
    if (!head.ok()) {
      reply->add_problems(what + " has a head that cannot be read");
      continue;
    }
    const std::size_t attached = SL_TRY(attached_to(t, branch)).size();
    if (head->state != BranchState::frozen && head->attachments != attached) {
      reply->add_problems(what + " counts " + std::to_string(head->attachments) +
                          " attachments but has " + std::to_string(attached));
    }
  }
  return {};
}

Status check_system(kv::Transaction& t, pb::FsckReply* reply) {
  std::set<BranchId> named;
  SL_TRY(check_records(t, &named, reply));
  return check_heads(t, named, reply);
}

/// The branch after `branch` that can be checked; none: that was the last.
Result<BranchId> next_branch(kv::Transaction& t, BranchId branch) {
  const std::vector<BranchId> next = SL_TRY(branches_from(t, BranchId{branch.value + 1}, 1));
  return next.empty() ? BranchId{} : next.front();
}

std::size_t size_of(const pb::FsckReply& reply) {
  return static_cast<std::size_t>(reply.references_size()) + reply.inodes() + reply.entries();
}

/// As many steps as make about `limit` rows. state->branch 0 afterwards: all is checked.
Status check_some(kv::Transaction& t, FsckState* state, std::size_t limit, pb::FsckReply* reply) {
  if (!state->branch) {
    SL_TRY(check_system(t, reply));
    state->branch = SL_TRY(next_branch(t, BranchId{}));
  }
  for (std::size_t steps = 0; state->branch && steps < 64 && size_of(*reply) < limit; ++steps) {
    const Result<HeadRow> head = read_head(t, state->branch);
    bool done = true;  // A branch that went meanwhile, or whose head was told about.
    if (head.ok()) done = SL_TRY(FsckBranch(t, *head, *state, reply).step(limit));
    if (!done) continue;
    const BranchId next = SL_TRY(next_branch(t, state->branch));
    *state = FsckState{};
    state->branch = next;
  }
  return {};
}

}  // namespace

Status op_fsck_references(Context& context, const Call&, const pb::FsckRequest& request,
                          pb::FsckReply* reply) {
  const std::size_t limit = request.limit() == 0 ? kMaxPage : std::min(request.limit(), kMaxPage);
  FsckState from;
  if (!request.cursor().empty()) {
    from = SL_TRY(FsckState::decode(request.cursor()));
    if (!from.branch) return {Errc::invalid, "this cursor is not one that was given out"};
  }
  FsckState state;
  SL_TRY(context.read([&](kv::Transaction& t) -> Status {
    reply->Clear();
    state = from;
    return check_some(t, &state, limit, reply);
  }));
  if (state.branch) reply->set_cursor(state.encode());
  return {};
}

}  // namespace starlane::meta
