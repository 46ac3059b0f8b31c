// dead_slices and settle_dead: what becomes of a reference that died. The one place that looks at
// the counts of slices.
#include <algorithm>
#include <unordered_map>

#include "meta/members/member_rows.h"
#include "meta/ops/ops.h"
#include "meta/upkeep/walk.h"

namespace starlane::meta {
namespace {

constexpr std::uint32_t kMaxPage = 1'024;
constexpr int kMaxSettled = 4'096;

void forget_dead(kv::Transaction& t, const kv::Row& row, const DeadKey& key, const DeadRow& dead) {
  t.expect(row.key, row.version);
  t.del(row.key);
  t.add(accumulator_key(key.branch, InodeId{}, What::held), -std::int64_t{dead.slice_length});
}

/// Judges one page of dead references in one transaction. Two references to one slice may both be
/// dead: of these the last one decides, so all who settle do it one after the other (the reaper's
/// row).
class Judgement {
 public:
  Judgement(kv::Transaction& t, pb::DeadSlicesReply* reply) : t_(t), reply_(reply) {}

  Status judge(const kv::Row& row) {
    const DeadKey key = SL_TRY(parse_dead_key(row.key));
    const DeadRow dead = SL_TRY(DeadRow::decode(row.value));
    if (dead.flags & kPinned) {
      t_.add(image_pins_key(dead.owner), -1);
      forget_dead(t_, row, key, dead);
      return {};
    }
    const bool others = SL_TRY(take_count(key.slice));
    if (others) {
      forget_dead(t_, row, key, dead);
      return {};
    }
    pb::DeadSlice* slice = reply_->add_slices();
    slice->set_row(row.key);
    slice->set_owner(dead.owner.value);
    slice->set_slice(key.slice.value);
    slice->set_slice_length(dead.slice_length);
    slice->set_placement_epoch(dead.placement_epoch);
    slice->set_remove(true);
    return {};
  }

  Status finish() {
    if (!counted_) return {};
    const std::optional<kv::Row> row = SL_TRY(t_.get(reaper_key()));
    NumberRow turns;
    if (row) turns = SL_TRY(NumberRow::decode(row->value));
    ++turns.number;
    t_.expect(reaper_key(), row ? row->version : kv::kAbsent);
    t_.put(reaper_key(), turns.encode());
    return {};
  }

 private:
  /// Whether the slice has other references; then it has one less.
  Result<bool> take_count(SliceId slice) {
    const auto [at, added] = left_.try_emplace(slice, 0);
    if (added) at->second = SL_TRY(t_.total(count_key(slice)));
    if (at->second <= 0) return false;
    --at->second;
    counted_ = true;
    t_.add(count_key(slice), -1);
    return true;
  }

  kv::Transaction& t_;
  pb::DeadSlicesReply* reply_;
  std::unordered_map<SliceId, std::int64_t> left_;  // K after what this transaction does
  bool counted_ = false;
};

}  // namespace

// A crash after the blocks went must not bring the reference back: what is judged here was read
// before the flush.
Status op_dead_slices(Context& context, const Call&, const pb::KeeperRequest& request,
                      pb::DeadSlicesReply* reply) {
  const std::size_t limit = request.limit() == 0 ? kMaxPage : std::min(request.limit(), kMaxPage);
  const Walked walked = SL_TRY(
      walk_table(context, Table::dead, {BranchId{request.branch()}, request.cursor(), limit}));
  reply->Clear();
  reply->set_cursor(walked.cursor);
  if (walked.rows.empty()) return {};
  SL_TRY(context.engine.flush());
  std::vector<std::string> keys;
  for (const kv::Row& row : walked.rows) keys.push_back(row.key);
  return kv::run(context.engine, kv::Durability::ordered, [&](kv::Transaction& t) -> Status {
    reply->clear_slices();
    Judgement judgement(t, reply);
    for (const std::optional<kv::Row>& row : SL_TRY(t.get_many(keys))) {
      if (row) SL_TRY(judgement.judge(*row));
    }
    return judgement.finish();
  });
}

Status op_settle_dead(Context& context, const Call&, const pb::SettleRequest& request, pb::Empty*) {
  if (request.rows_size() > kMaxSettled) {
    return {Errc::invalid, "at most 4096 dead references are settled at once"};
  }
  std::vector<std::string> keys;
  for (const std::string& row : request.rows()) {
    SL_TRY(parse_dead_key(row));
    keys.push_back(row);
  }
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return kv::run(context.engine, kv::Durability::ordered, [&](kv::Transaction& t) -> Status {
    for (const std::optional<kv::Row>& row : SL_TRY(t.get_many(keys))) {
      if (!row) continue;  // Settled before: the answer was lost.
      const DeadKey key = SL_TRY(parse_dead_key(row->key));
      const DeadRow dead = SL_TRY(DeadRow::decode(row->value));
      const std::int64_t others = SL_TRY(t.total(count_key(key.slice)));
      if ((dead.flags & kPinned) != 0 || others > 0) {
        return {Errc::invalid, "a slice that others refer to was not to be removed"};
      }
      forget_dead(t, *row, key, dead);
      t.clear(count_key(key.slice));  // Nobody can refer to it any more.
    }
    return {};
  });
}

}  // namespace starlane::meta
