#include "meta/members/flush_marks.h"

#include <algorithm>

#include "meta/context.h"
#include "meta/members/member_rows.h"

namespace starlane::meta {
namespace {

constexpr std::size_t kMostWindows = 256;          // the oldest are forgotten
constexpr std::uint64_t kMarkEvery = 100'000'000;  // ns: a mark is a commit, and flushes are many

Result<std::uint64_t> next_slice(kv::Transaction& t) {
  const std::optional<kv::Row> row = SL_TRY(t.get(id_pool_key(Pool::slice)));
  return row ? SL_TRY(NumberRow::decode(row->value)).number : 1;
}

Status add_window(kv::Transaction& t, std::uint64_t since_ns) {
  WindowRow window;
  window.below = SliceId(SL_TRY(next_slice(t)));
  t.put(window_key(since_ns), window.encode());
  const KeyRange all = table_range(Space::system, BranchId{}, Table::window);
  const std::vector<kv::Row> rows = SL_TRY(t.scan({all.first, all.last, 2 * kMostWindows}));
  for (std::size_t i = 0; i + kMostWindows <= rows.size(); ++i) t.del(rows[i].key);
  return {};
}

}  // namespace

Result<FlushedRow> FlushedRow::decode(std::string_view value) {
  return decode_row<FlushedRow>(value, "flush mark");
}

Result<WindowRow> WindowRow::decode(std::string_view value) {
  return decode_row<WindowRow>(value, "window of unsynced commits");
}

Status FlushMarks::begin() {
  return kv::run(engine_, kv::Durability::durable, [&](kv::Transaction& t) -> Status {
    const std::optional<kv::Row> row = SL_TRY(t.get(flushed_key()));
    FlushedRow mark;
    if (row) mark = SL_TRY(FlushedRow::decode(row->value));
    if (row && (mark.header.flags & kEndedWell) == 0) SL_TRY(add_window(t, mark.synced_ns));
    mark.header.flags = 0;
    mark.synced_ns = std::max(mark.synced_ns, to_ns(clock_.wall()));
    t.put(flushed_key(), mark.encode());
    written_ns_ = mark.synced_ns;
    return {};
  });
}

Status FlushMarks::synced(std::uint64_t asked_ns) {
  if (asked_ns < written_ns_ + kMarkEvery) return {};
  return put(asked_ns, 0);
}

Status FlushMarks::end() { return put(std::max(written_ns_, to_ns(clock_.wall())), kEndedWell); }

Status FlushMarks::put(std::uint64_t synced_ns, std::uint8_t flags) {
  const FlushedRow mark{{flags, 0}, synced_ns};
  SL_TRY(kv::run(engine_, kv::Durability::ordered, [&](kv::Transaction& t) -> Status {
    t.put(flushed_key(), mark.encode());
    return {};
  }));
  written_ns_ = synced_ns;
  return {};
}

Result<SyncWindows> SyncWindows::read(kv::Transaction& t) {
  const KeyRange all = table_range(Space::system, BranchId{}, Table::window);
  SyncWindows out;
  for (const kv::Row& row : SL_TRY(t.scan({all.first, all.last, 2 * kMostWindows}))) {
    const WindowRow window = SL_TRY(WindowRow::decode(row.value));
    out.windows_.push_back({KeyReader(row.key).u64(), window.below});
  }
  return out;
}

bool SyncWindows::may_lack(SliceId slice, std::uint64_t changed_ns) const {
  return std::ranges::any_of(windows_, [&](const Window& window) {
    return changed_ns >= window.since_ns && slice < window.below;
  });
}

}  // namespace starlane::meta
