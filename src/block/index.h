// The index of a target: typed rows over an ordered table. Changed by whole batches only, each of
// which is on the device when apply() returns, so that what the table says is always true of the
// segments, up to the marks that stand in it; what came after them is found again in the segments.
// Any thread. Layout: docs/formats.md, "Block store".
#pragma once
#include <compare>
#include <map>
#include <optional>

#include "block/record.h"
#include "proto/block_service.h"
#include "table/table.h"

namespace starlane::block {

struct SliceKey {
  BranchId owner;
  SliceId slice;
  friend constexpr auto operator<=>(const SliceKey&, const SliceKey&) = default;
};

/// How far a segment is indexed.
struct SegmentMark {
  std::uint64_t indexed_to = 0;  // records that begin before are in the index, or dead
  std::uint64_t live_bytes = 0;  // records of indexed blocks
  bool sealed = false;           // nothing is appended any more
  friend bool operator==(const SegmentMark&, const SegmentMark&) = default;
};

struct Totals {
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;  // payload
};

/// Changes that belong together. One thread.
class IndexBatch {
 public:
  void put(const BlockId& block, const Entry& entry);
  void erase(const BlockId& block);
  void put(std::uint64_t segment, const SegmentMark& mark);
  void erase_segment(std::uint64_t segment);
  void put(const Totals& totals);
  /// A fence; pending: blocks of the slice may still be in the index.
  void fence(const SliceKey& slice, bool pending);
  void end_pending(const SliceKey& slice);

 private:
  friend class Index;
  table::WriteBatch batch_;
};

class Index {
 public:
  /// `fresh` says whether the table had to be made.
  static Result<std::unique_ptr<Index>> open(const std::string& directory,
                                             std::uint64_t cache_bytes, bool& fresh);

  /// not_found, corrupt, io.
  Result<EntryPtr> find(const BlockId& block) const;
  struct PutState {
    bool fenced = false;
    EntryPtr entry;  // null: not there
  };
  /// What a put has to know, in one look.
  Result<PutState> state_of(const BlockId& block) const;
  Result<bool> is_fenced(const SliceKey& slice, bool& pending) const;

  /// Blocks with id > `after` (or all), in order, until `visit` returns false.
  template <typename Visit>
  Status for_each(const std::optional<BlockId>& after, Visit visit) const;
  Result<std::vector<std::pair<BlockId, EntryPtr>>> blocks_of(const SliceKey& slice) const;

  Result<std::map<std::uint64_t, SegmentMark>> segments() const;
  Result<Totals> totals() const;
  Result<std::vector<SliceKey>> pending_removals() const;

  /// All or nothing, and durable.
  Status apply(const IndexBatch& batch);

 private:
  explicit Index(std::unique_ptr<table::Table> table) : table_(std::move(table)) {}
  Result<std::vector<std::pair<BlockId, EntryPtr>>> page(const std::string& first,
                                                         const std::string& last,
                                                         std::size_t limit) const;
  static std::string first_after(const std::optional<BlockId>& after);

  const std::unique_ptr<table::Table> table_;
};

/// Value of a block's row, for tests.
std::string encode_entry(const Entry& entry);
Result<Entry> decode_entry(std::string_view value);

template <typename Visit>
Status Index::for_each(const std::optional<BlockId>& after, Visit visit) const {
  std::optional<BlockId> position = after;
  while (true) {
    constexpr std::size_t kPageRows = 256;
    const auto rows = SL_TRY(page(first_after(position), "C", kPageRows));
    for (const auto& [block, entry] : rows) {
      if (!visit(block, entry)) return {};
    }
    if (rows.size() < kPageRows) return {};
    position = rows.back().first;
  }
}

}  // namespace starlane::block
