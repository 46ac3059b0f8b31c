// What one transaction asks of its commit, gathered by Transaction and judged by Resolver. Plain
// data, one thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kv/occ/format.h"
#include "kv/occ/snapshots.h"
#include "kv/occ/totals.h"

namespace starlane::kv::occ {

struct Expectation {
  std::string key;  // All keys here are those of format.h, but for the ranges' too.
  Version wanted = kAbsent;
  std::optional<Version> at_begin;  // The row's version in the snapshot, once known.
};

struct EmptyRange {
  std::string first;
  std::string last;
  std::vector<std::string> rows_at_begin;
};

struct RowChange {
  std::string key;
  std::string value;  // row_value(); empty for a delete
  bool is_delete = false;
};

struct TotalChange {
  enum class What : std::uint8_t { add, greatest, clear };
  std::string key;
  What what = What::add;
  std::int64_t amount = 0;
  std::optional<std::int64_t> limit;
};

struct Intent {
  SnapshotPtr snapshot;
  std::vector<Expectation> expects;
  std::vector<std::string> guards;
  std::vector<EmptyRange> empties;
  std::vector<std::string> touches;
  std::vector<RowChange> rows;
  std::vector<TotalChange> totals;
  std::size_t bytes = 0;

  bool writes() const { return !rows.empty() || !totals.empty(); }
  bool asks() const { return !expects.empty() || !guards.empty() || !empties.empty(); }
  bool frees() const {
    for (const RowChange& row : rows)
      if (row.is_delete) return true;
    return false;
  }
};

}  // namespace starlane::kv::occ
