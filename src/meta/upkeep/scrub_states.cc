// scrub_states and note_scrub: how far the keeper has read each target's blocks back, kept here so
// that another keeper goes on from there.
#include "meta/members/attachments.h"
#include "meta/members/member_rows.h"
#include "meta/messages.h"
#include "meta/ops/ops.h"

namespace starlane::meta {
namespace {

constexpr std::size_t kMaxTargets = 65'536;
constexpr std::size_t kMaxCursor = 4'096;

void tell(const kv::Row& row, const ScrubRow& scrub, pb::ScrubState* out) {
  out->set_target(KeyReader(row.key).u32());
  out->set_cursor(scrub.cursor);
  put_time(scrub.started, out->mutable_started());
  put_time(scrub.finished, out->mutable_finished());
  out->set_blocks(scrub.blocks);
  out->set_bytes(scrub.bytes);
  out->set_damaged(scrub.damaged_blocks);
  out->set_wanted((scrub.header.flags & kScrubWanted) != 0);
}

}  // namespace

Status op_scrub_states(Context& context, const Call&, const pb::Empty&, pb::ScrubStates* reply) {
  return context.read([&](kv::Transaction& t) -> Status {
    reply->Clear();
    const KeyRange range = table_range(Space::system, BranchId{}, Table::scrub);
    const std::vector<kv::Row> rows = SL_TRY(scan_all(t, range, kMaxTargets));
    for (const kv::Row& row : rows) {
      const ScrubRow scrub = SL_TRY(ScrubRow::decode(row.value));
      tell(row, scrub, reply->add_targets());
    }
    return {};
  });
}

// Who wants a pass says nothing else, and who scrubs says nothing of that: so neither undoes what
// the other said. The wish ends with the next pass that does.
Status op_note_scrub(Context& context, const Call&, const pb::ScrubState& request, pb::Empty*) {
  if (request.target() == 0 || request.cursor().size() > kMaxCursor)
    return {Errc::invalid, "a scrub's state names a target and a cursor of at most 4096 bytes"};
  ScrubRow said;
  said.started = SL_TRY(time_of(request.started()));
  said.finished = SL_TRY(time_of(request.finished()));
  said.blocks = request.blocks();
  said.bytes = request.bytes();
  said.damaged_blocks = request.damaged();
  said.cursor = request.cursor();
  const std::string key = scrub_key(TargetId{request.target()});
  return kv::run(context.engine, kv::Durability::ordered, [&](kv::Transaction& t) -> Status {
    const std::optional<kv::Row> row = SL_TRY(t.get(key));
    ScrubRow known;
    if (row) known = SL_TRY(ScrubRow::decode(row->value));
    ScrubRow next = request.wanted() ? known : said;
    const bool over = known.finished < next.finished;
    const bool wanted = request.wanted() || ((known.header.flags & kScrubWanted) != 0 && !over);
    next.header.flags = wanted ? kScrubWanted : 0;
    t.expect(key, row ? row->version : kv::kAbsent);
    t.put(key, next.encode());
    return {};
  });
}

}  // namespace starlane::meta
