#include "meta/upkeep/walk.h"

namespace starlane::meta {

Result<std::vector<BranchId>> branches_from(kv::Transaction& t, BranchId first, std::size_t limit) {
  const KeyRange heads = table_range(Space::system, BranchId{}, Table::head);
  std::vector<BranchId> branches;
  for (const kv::Row& row : SL_TRY(t.scan({head_key(first), heads.last, limit}))) {
    branches.push_back(BranchId{KeyReader(row.key).u64()});
  }
  return branches;
}

namespace {

/// One branch's part of a walk; true: the limit is reached.
Result<bool> walk_branch(kv::Transaction& t, const KeyRange& range, std::size_t limit,
                         Walked* out) {
  std::vector<kv::Row> rows = SL_TRY(t.scan({range.first, range.last, limit - out->rows.size()}));
  for (kv::Row& row : rows) out->rows.push_back(std::move(row));
  return out->rows.size() >= limit;
}

Status walk_from(kv::Transaction& t, Table table, const Walk& walk, BranchId first, Walked* out) {
  BranchId next = first;
  for (;;) {
    const std::vector<BranchId> branches =
        SL_TRY(branches_from(t, next, walk.only ? 1 : kBranchPage));
    for (const BranchId branch : branches) {
      if (walk.only && branch != walk.only) return {};
      KeyRange range = table_range(Space::branch, branch, table);
      if (walk.cursor >= range.first) range.first = walk.cursor + '\0';
      if (range.first >= range.last) continue;
      const bool full = SL_TRY(walk_branch(t, range, walk.limit, out));
      if (full) {
        out->cursor = out->rows.back().key;
        return {};
      }
      next = BranchId{branch.value + 1};
    }
    if (walk.only || branches.size() < kBranchPage) return {};
  }
}

}  // namespace

Result<Walked> walk_table(Context& context, Table table, const Walk& walk) {
  BranchId first = walk.only;
  if (!walk.cursor.empty()) {
    const KeyReader key(walk.cursor);
    if (!key.ok() || key.space() != Space::branch || key.table() != table ||
        (walk.only && key.branch() != walk.only)) {
      return Status(Errc::invalid, "this cursor is not one that was given out");
    }
    first = key.branch();
  }
  Walked out;
  SL_TRY(context.read([&](kv::Transaction& t) -> Status {
    out = {};
    return walk_from(t, table, walk, first, &out);
  }));
  return out;
}

Result<std::size_t> delete_rows(kv::Transaction& t, const KeyRange& range, std::size_t limit) {
  const std::vector<kv::Row> rows = SL_TRY(t.scan({range.first, range.last, limit}));
  for (const kv::Row& row : rows) t.del(row.key);
  return rows.size();
}

Status change_inside(Context& context, BranchId branch,
                     const std::function<Status(Change&)>& body) {
  const Access access{branch, SessionId{}, 0, 0};
  return kv::run(context.engine, kv::Durability::ordered, [&](kv::Transaction& t) -> Status {
    const std::optional<kv::Row> row = SL_TRY(t.get(head_key(branch)));
    if (!row) return {};
    t.guard(head_key(branch));
    const WallTime now = context.clock.wall();
    Change change{context, t, access, SL_TRY(HeadRow::decode(row->value)), now, to_ns(now)};
    return body(change);
  });
}

}  // namespace starlane::meta
