// Merging of one chunk whose list of slices became long, or wasteful: its bytes are read, written
// as few new slices, and the list is exchanged if nobody changed it meanwhile. One thread at a
// time.
#pragma once
#include <cstdint>
#include <vector>

#include "common/ids.h"
#include "keeper/merge_plan.h"
#include "keeper/slice_blocks.h"
#include "proto/meta_service.h"

namespace starlane::keeper {

class Merger {
 public:
  Merger(MetaService& meta, SliceBlocks& blocks) : meta_(meta), blocks_(blocks) {}

  struct Outcome {
    bool exchanged =
        false;  // false: the list changed meanwhile or is short again; nothing happened to the file
    std::uint64_t bytes_written = 0;
    std::uint32_t entries_before = 0;
    std::uint32_t entries_after = 0;
  };
  /// Memory: one block. Blocks until done. Whatever happens, the file reads the same before and
  /// after.
  Result<Outcome> merge(const Call& call, const pb::LongChunk& chunk);

  /// Slices that were reserved and not committed: only the end of the session gives them back.
  std::uint64_t abandoned() const { return abandoned_; }
  void forget_abandoned() { abandoned_ = 0; }

 private:
  Result<std::vector<pb::NewSlice>> write_runs(const Call& call, const pb::LongChunk& chunk,
                                               const EntryList& entries,
                                               const std::vector<MergedRun>& runs);
  Status write_run(const Call& call, const SliceName& name, const EntryList& entries,
                   const MergedRun& run);
  Status fill_block(const Call& call, const EntryList& entries, const MergedRun& run,
                    std::uint64_t begin, MutableByteSpan block);

  MetaService& meta_;
  SliceBlocks& blocks_;
  std::uint64_t abandoned_ = 0;
};

}  // namespace starlane::keeper
