#include "keeper/fsck.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "keeper/slice_blocks.h"
#include "keeper/slice_census.h"

namespace starlane::keeper {
namespace {

constexpr std::size_t kMaxSuspects =
    100'000;  // of one pass; beyond, only these are looked at again and told

std::string text_of_block(const BlockId& block) {
  return "block " + std::to_string(block.index) + " of slice " + std::to_string(block.slice.value) +
         " (owner " + std::to_string(block.owner.value) + ")";
}

SliceCensus::Key key_of(const pb::FsckReference& reference) {
  return {reference.owner(), reference.slice()};
}

struct MissingSuspect {
  BlockId block;
  FileKey file;
  std::uint32_t chunk = 0;
  bool wrong_length = false;
  bool may_be_unsynced = false;
  friend auto operator<=>(const MissingSuspect&, const MissingSuspect&) = default;
};

using SliceOrder = std::pair<std::uint64_t, std::uint64_t>;  // owner, slice

/// References that there are, and that metadata counts.
struct Count {
  std::int64_t found = 0;
  std::int64_t counted = 0;
  bool right() const { return found == 0 || found == counted; }
  friend bool operator==(const Count&, const Count&) = default;
};
/// By slice; of those that are pinned, which are counted together, by owner and 0.
using Counts = std::map<SliceOrder, Count>;

void add_to(Count& count, const pb::FsckReference& reference) {
  ++count.found;
  count.counted = reference.counted() + (reference.pinned() ? 0 : 1);
}
bool is_counted(const pb::FsckReference& reference) { return reference.kind() != "reserved"; }

class Fsck {
 public:
  Fsck(MetaService& meta, BlockService& blocks, const Call& call, const FsckOptions& options,
       const FsckTold& told)
      : meta_(meta),
        service_(blocks),
        blocks_(blocks, 1),
        call_(call),
        options_(options),
        told_(told) {}

  Result<FsckReport> run() {
    pb::ClusterMap map;
    SL_TRY(meta_.cluster_map(call_, pb::Empty(), &map));
    blocks_.use(SL_TRY(map_of(map)));
    report_.targets = blocks_.map().targets.size();
    // A part that does not fit into memory is cut into four.
    std::vector<Part> left{{0, 1}};
    while (!left.empty()) {
      const Part part = left.back();
      left.pop_back();
      const bool fits = SL_TRY(check_part(part));
      if (fits) continue;
      for (std::uint32_t i = 0; i < 4; ++i)
        left.push_back({part.number + i * part.of, part.of * 4});
    }
    if (options_.verify_blocks) SL_TRY(verify_all());
    return report_;
  }

 private:
  struct Part {
    std::uint32_t number;
    std::uint32_t of;
  };

  Result<bool> check_part(const Part& part) {
    SliceCensus census(part.number, part.of);
    const bool fits = SL_TRY(list_blocks(census));
    if (!fits) return false;
    missing_.clear();
    SL_TRY(check_references(census));
    SL_TRY(confirm(census));
    return true;
  }

  template <typename Visit>
  Status each_block(bool verify, const Visit& visit) {
    for (const Target& target : blocks_.map().targets) {
      std::string cursor;
      do {
        Result<BlockListing> page = verify
                                        ? service_.verify(call_, target.id, cursor, options_.page)
                                        : service_.list(call_, target.id, cursor, options_.page);
        if (!page.ok()) return page.status().with("target " + std::to_string(target.id.value));
        for (const BlockInfo& info : page->blocks) {
          if (!visit(target.id, info)) return {};
        }
        cursor = std::move(page->cursor);
      } while (!cursor.empty());
    }
    return {};
  }

  // False: too many slices for the memory allowed. The first listing also counts, and goes to the
  // end.
  Result<bool> list_blocks(SliceCensus& census) {
    const bool count = !std::exchange(blocks_counted_, true);
    bool fits = true;
    SL_TRY(each_block(false, [&](TargetId target, const BlockInfo& info) {
      const bool possible =
          info.block.index < kMaxSliceBlocks && info.length > 0 && info.length <= kBlockSize;
      if (count) count_block(target, info, possible);
      if (!fits || !possible) return fits || count;
      if (!census.covers({info.block.owner.value, info.block.slice.value})) return true;
      census.saw_block(info);
      fits = census.size() <= options_.slices_in_memory;
      return fits || count;
    }));
    return fits;
  }

  void count_block(TargetId target, const BlockInfo& info, bool possible) {
    ++report_.blocks;
    report_.block_bytes += info.length;
    if (possible) return;
    tell({FsckProblem::Kind::wrong,
          text_of_block(info.block) + " of " + std::to_string(info.length) + " bytes on target " +
              std::to_string(target.value) + " cannot belong to any slice",
          info.block,
          target,
          {},
          0});
  }

  template <typename Visit>
  Status each_reference(const Visit& visit, bool count_rows) {
    pb::FsckRequest request;
    request.set_session(call_.session.value);
    request.set_limit(options_.page);
    for (;;) {
      pb::FsckReply page;
      SL_TRY(meta_.fsck_references(call_, request, &page));
      if (count_rows) {
        report_.inodes += page.inodes();
        report_.entries += page.entries();
        for (const std::string& text : page.problems())
          tell({FsckProblem::Kind::rows, text, {}, {}, {}, 0});
      }
      for (const pb::FsckReference& reference : page.references()) visit(reference);
      if (page.cursor().empty()) return {};
      request.set_cursor(page.cursor());
    }
  }

  Status check_references(SliceCensus& census) {
    const bool count = !std::exchange(references_counted_, true);
    return each_reference(
        [&](const pb::FsckReference& reference) {
          if (count) this->count(reference);
          if (count && reference.pinned()) add_to(pinned_[{reference.owner(), 0}], reference);
          if (!census.covers(key_of(reference))) return;
          SeenSlice* seen = census.find(key_of(reference));
          if (seen != nullptr) {
            seen->referenced = true;
            if (is_counted(reference) && !reference.pinned()) {
              ++seen->references;
              seen->further = reference.counted();
            }
          }
          if (reference.kind() == "live") suspect_missing(reference, seen);
        },
        count);
  }

  void count(const pb::FsckReference& reference) {
    ++report_.references;
    if (reference.kind() == "live") ++report_.live;
    if (reference.kind() == "dead") ++report_.dead;
    if (reference.kind() == "reserved") ++report_.reserved;
  }

  void suspect_missing(const pb::FsckReference& reference, const SeenSlice* seen) {
    const std::uint32_t blocks = std::min(blocks_in(reference.slice_length()), kMaxSliceBlocks);
    for (std::uint32_t index = 0; index < blocks && missing_.size() < kMaxSuspects; ++index) {
      const bool present = seen != nullptr && (seen->present >> index & 1) != 0;
      const bool partial = seen != nullptr && (seen->partial >> index & 1) != 0;
      const std::uint32_t length = block_length(reference.slice_length(), index);
      const bool right = partial ? seen->partial_length == length : length == kBlockSize;
      if (present && right) continue;
      missing_.insert({{BranchId(reference.owner()), SliceId(reference.slice()), index},
                       {BranchId(reference.branch()), InodeId(reference.inode())},
                       reference.chunk(),
                       present,
                       reference.may_be_unsynced()});
    }
  }

  // Everything in use changes: what looked wrong counts only if it still does.
  Status confirm(const SliceCensus& census) {
    std::set<SliceOrder> orphans;
    Counts wrong = std::exchange(pinned_, {});
    std::erase_if(wrong, [](const auto& one) { return one.second.right(); });
    census.each([&](const SliceCensus::Key& key, const SeenSlice& slice) {
      if (!slice.referenced && orphans.size() < kMaxSuspects)
        orphans.insert({key.owner, key.slice});
      const Count count{slice.references, slice.further + 1};
      if (!count.right() && wrong.size() < kMaxSuspects) wrong[{key.owner, key.slice}] = count;
    });
    if (orphans.empty() && missing_.empty() && wrong.empty()) return {};
    std::set<std::tuple<SliceOrder, FileKey>> live;
    Counts again;
    SL_TRY(each_reference(
        [&](const pb::FsckReference& reference) {
          const SliceOrder slice{reference.owner(), reference.slice()};
          const SliceOrder counted{reference.owner(), reference.pinned() ? 0 : reference.slice()};
          if (is_counted(reference) && wrong.contains(counted)) add_to(again[counted], reference);
          orphans.erase(slice);
          if (reference.kind() != "live") return;
          const auto at = missing_.lower_bound(
              {{BranchId(slice.first), SliceId(slice.second), 0}, {}, 0, false, false});
          if (at == missing_.end() || at->block.owner.value != slice.first ||
              at->block.slice.value != slice.second) {
            return;
          }
          live.insert({slice, {BranchId(reference.branch()), InodeId(reference.inode())}});
        },
        false));
    for (const MissingSuspect& suspect : missing_) {
      if (live.count({{suspect.block.owner.value, suspect.block.slice.value}, suspect.file}) != 0) {
        SL_TRY(confirm_missing(suspect));
      }
    }
    for (const SliceOrder& slice : orphans) SL_TRY(confirm_orphan(census, slice));
    for (const auto& [slice, count] : wrong) {
      if (again[slice] == count) tell_miscounted(slice, count);  // else it is just being copied
    }
    return {};
  }

  void tell_miscounted(const SliceOrder& slice, const Count& count) {
    const std::string what = slice.second == 0 ? "image " + std::to_string(slice.first)
                                               : "slice " + std::to_string(slice.second) +
                                                     " (owner " + std::to_string(slice.first) + ")";
    tell({FsckProblem::Kind::rows,
          what + " has " + std::to_string(count.found) + " references but counts " +
              std::to_string(count.counted),
          {BranchId(slice.first), SliceId(slice.second), 0},
          {},
          {},
          0});
  }

  Status confirm_missing(const MissingSuspect& suspect) {
    const std::string where = "chunk " + std::to_string(suspect.chunk) + " of inode " +
                              std::to_string(suspect.file.inode.value) + " (branch " +
                              std::to_string(suspect.file.branch.value) + ")";
    if (suspect.wrong_length) {
      tell({FsckProblem::Kind::wrong,
            text_of_block(suspect.block) + ", used by " + where +
                ", does not have its slice's length",
            suspect.block,
            {},
            suspect.file,
            suspect.chunk});
      return {};
    }
    const Result<bool> has = blocks_.has(call_, suspect.block);
    if (has.ok() && *has) return {};
    if (!has.ok() && has.code() != Errc::corrupt) return has.status();
    const std::string gone = text_of_block(suspect.block) + " is on no target, and " + where;
    const bool unsynced = suspect.may_be_unsynced;
    tell({unsynced ? FsckProblem::Kind::unsynced : FsckProblem::Kind::missing,
          gone + (unsynced
                      ? " refers to it since shortly before a crash: a write that was not synced"
                      : " refers to it: its bytes are lost"),
          suspect.block,
          {},
          suspect.file,
          suspect.chunk});
    return {};
  }

  Status confirm_orphan(const SliceCensus& census, const SliceOrder& slice) {
    const SeenSlice* seen = census.find({slice.first, slice.second});
    for (std::uint32_t index = 0; index < kMaxSliceBlocks; ++index) {
      if ((seen->present >> index & 1) == 0) continue;
      const BlockId block{BranchId(slice.first), SliceId(slice.second), index};
      const Result<bool> has = blocks_.has(call_, block);
      if (!has.ok() && has.code() != Errc::corrupt) return has.status();
      if (has.ok() && !*has) continue;  // Removed meanwhile, as it should be.
      tell({FsckProblem::Kind::orphan,
            text_of_block(block) + " is referred to by nothing",
            block,
            {},
            {},
            0});
    }
    return {};
  }

  Status verify_all() {
    return each_block(true, [&](TargetId target, const BlockInfo& info) {
      tell({FsckProblem::Kind::corrupt,
            text_of_block(info.block) + " on target " + std::to_string(target.value) +
                " does not match its checksums",
            info.block,
            target,
            {},
            0});
      return true;
    });
  }

  void tell(const FsckProblem& problem) {
    switch (problem.kind) {
      case FsckProblem::Kind::rows:
        ++report_.rows;
        break;
      case FsckProblem::Kind::missing:
        ++report_.missing;
        break;
      case FsckProblem::Kind::unsynced:
        ++report_.unsynced;
        break;
      case FsckProblem::Kind::wrong:
        ++report_.wrong;
        break;
      case FsckProblem::Kind::corrupt:
        ++report_.corrupt;
        break;
      case FsckProblem::Kind::orphan:
        ++report_.orphans;
        break;
    }
    told_(problem);
  }

  MetaService& meta_;
  BlockService& service_;
  SliceBlocks blocks_;
  const Call call_;
  const FsckOptions options_;
  const FsckTold& told_;
  FsckReport report_;
  std::set<MissingSuspect> missing_;
  Counts pinned_;  // of the first pass over all references
  bool blocks_counted_ = false;
  bool references_counted_ = false;
};

}  // namespace

std::string_view name_of(FsckProblem::Kind kind) {
  switch (kind) {
    case FsckProblem::Kind::rows:
      return "rows";
    case FsckProblem::Kind::missing:
      return "missing";
    case FsckProblem::Kind::unsynced:
      return "unsynced";
    case FsckProblem::Kind::wrong:
      return "wrong";
    case FsckProblem::Kind::corrupt:
      return "corrupt";
    case FsckProblem::Kind::orphan:
      return "orphan";
  }
  return "unknown";
}

Result<FsckReport> fsck(MetaService& meta, BlockService& blocks, const Call& call,
                        const FsckOptions& options, const FsckTold& told) {
  return Fsck(meta, blocks, call, options, told).run();
}

}  // namespace starlane::keeper
