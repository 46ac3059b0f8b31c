#include "meta/upkeep/leftovers.h"

#include <algorithm>

#include "meta/contents.h"
#include "meta/escrow.h"
#include "meta/locks/lock_list.h"
#include "meta/members/attachments.h"
#include "meta/upkeep/walk.h"
#include "proto/meta.pb.h"

namespace starlane::meta {
namespace {

constexpr std::size_t kReservedPage = 64;  // rows, of up to 64 slices each
constexpr std::size_t kOutcomePage = 1'000;
constexpr std::size_t kLockPage = 256;    // rows read at once
constexpr std::size_t kLockRows = 1'000;  // rows changed by one transaction
constexpr std::size_t kStepRows = 4'096;  // removed by one step, about

/// What was removed of one session in one branch by one transaction.
struct Cleared {
  std::uint64_t orphans = 0;
  std::uint64_t outcomes = 0;
  std::uint64_t rows = 0;
  bool more = false;
};

/// Takes its locks out of the rows of their files: as of pins, there are few such rows. How many
/// rows changed; kLockRows: perhaps not all.
Result<std::size_t> clear_locks(Change& change, SessionId session) {
  KeyRange range = table_range(Space::branch, change.branch(), Table::lock);
  std::size_t changed = 0;
  for (;;) {
    const std::vector<kv::Row> rows = SL_TRY(change.t.scan({range.first, range.last, kLockPage}));
    for (const kv::Row& row : rows) {
      LockRow decoded = SL_TRY(LockRow::decode(row.value));
      if (std::erase_if(decoded.locks,
                        [&](const FileLock& lock) { return lock.of.session == session; }) == 0)
        continue;
      change.t.expect(row.key, row.version);
      decoded.locks.empty() ? change.t.del(row.key) : change.t.put(row.key, decoded.encode());
      if (++changed == kLockRows) return changed;
    }
    if (rows.size() < kLockPage) return changed;
    range.first = rows.back().key + '\0';
  }
}

Status clear_in_branch(Change& change, SessionId session, Cleared* out) {
  *out = {};
  const KeyRange reserved = reserved_by(change.branch(), session);
  const std::vector<kv::Row> rows =
      SL_TRY(change.t.scan({reserved.first, reserved.last, kReservedPage}));
  for (const kv::Row& row : rows) out->orphans += SL_TRY(bury_reserved(change, row));
  const KeyRange outcomes = outcomes_below(change.branch(), session, UINT64_MAX);
  out->outcomes = SL_TRY(delete_rows(change.t, outcomes, kOutcomePage));
  const std::vector<kv::Row> pins = SL_TRY(pins_by(change.t, change.branch(), session));
  for (const kv::Row& pin : pins) change.t.del(pin.key);
  const std::size_t locks = SL_TRY(clear_locks(change, session));
  SL_TRY(return_escrow(change.t, change.branch(), session));
  out->rows = rows.size() + out->outcomes + pins.size() + locks;
  out->more = rows.size() == kReservedPage || out->outcomes == kOutcomePage || locks == kLockRows;
  return {};
}

/// True: nothing is left in this branch.
Result<bool> clear_branch(Context& context, BranchId branch, SessionId session, std::size_t* budget,
                          pb::HousekeepingReply* reply) {
  for (;;) {
    Cleared cleared;
    SL_TRY(change_inside(context, branch, [&](Change& change) {
      return clear_in_branch(change, session, &cleared);
    }));
    reply->set_orphan_slices(reply->orphan_slices() + cleared.orphans);
    reply->set_forgotten_outcomes(reply->forgotten_outcomes() + cleared.outcomes);
    reply->set_removed_rows(reply->removed_rows() + cleared.rows);
    *budget -= std::min<std::size_t>(*budget, cleared.rows);
    if (!cleared.more) return true;
    if (*budget == 0) return false;
  }
}

}  // namespace

Result<std::uint64_t> bury_reserved(Change& change, const kv::Row& row) {
  KeyReader key(row.key);
  key.u64();  // the session
  const std::uint64_t first = key.u64();
  const ReservedRow reserved = SL_TRY(ReservedRow::decode(row.value));
  std::uint64_t buried = 0;
  for (std::uint32_t i = 0; i < reserved.count; ++i) {
    if (reserved.committed >> i & 1) continue;
    Entry entry;
    entry.slice = SliceId{first + i};
    entry.owner = change.branch();
    entry.birth = static_cast<std::uint32_t>(change.head.epoch);
    entry.placement_epoch = static_cast<std::uint32_t>(reserved.map_epoch);
    put_dead(change, InodeId{}, 0, 0, entry);  // Of unknown length, so it holds no bytes.
    ++buried;
  }
  change.t.expect(row.key, row.version);
  change.t.del(row.key);
  return buried;
}

Status bury_reserved(Context& context, BranchId branch, SessionId session) {
  const KeyRange range = reserved_by(branch, session);
  bool more = true;
  const auto bury_page = [&](Change& change) -> Status {
    const std::vector<kv::Row> rows =
        SL_TRY(change.t.scan({range.first, range.last, kReservedPage}));
    for (const kv::Row& row : rows) SL_TRY(bury_reserved(change, row));
    more = rows.size() == kReservedPage;
    return {};
  };
  while (more) SL_TRY(change_inside(context, branch, bury_page));
  return {};
}

Result<bool> clear_session_step(Context& context, SessionId session, pb::HousekeepingReply* reply) {
  std::size_t budget = kStepRows;
  BranchId first;
  for (;;) {
    std::vector<BranchId> branches;
    if (const Status done = context.read([&](kv::Transaction& t) -> Status {
          branches = SL_TRY(branches_from(t, first, kBranchPage));
          return {};
        });
        !done.ok())
      return done;
    for (const BranchId branch : branches) {
      const bool cleared = SL_TRY(clear_branch(context, branch, session, &budget, reply));
      if (!cleared) return false;
    }
    if (branches.size() < kBranchPage) break;
    first = BranchId{branches.back().value + 1};
  }
  if (const Status done =
          kv::run(context.engine, kv::Durability::ordered,
                  [&](kv::Transaction& t) -> Status {
                    t.del(dead_session_key(session));
                    SL_TRY(delete_rows(t, attached_by(session), kMaxAttachments * 2));
                    return {};
                  });
      !done.ok())
    return done;
  return true;
}

}  // namespace starlane::meta
