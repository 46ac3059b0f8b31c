#include "keeper/merge_plan.h"

#include <algorithm>
#include <map>

#include "common/bytes.h"

namespace starlane::keeper {
namespace {

bool holds_bytes(const pb::SliceEntry& entry) {
  return entry.kind() == pb::SliceEntry::DATA || entry.kind() == pb::SliceEntry::INLINE;
}

// What is seen, by position; ranges never overlap.
class Coverage {
 public:
  void lay(const SeenPiece& piece) {
    cut(piece.position, piece.position + piece.length);
    seen_.emplace(piece.position, piece);
  }
  std::vector<SeenPiece> pieces() const {
    std::vector<SeenPiece> all;
    all.reserve(seen_.size());
    for (const auto& [position, piece] : seen_) all.push_back(piece);
    return all;
  }
  // Nothing is left in [begin, end).
  void cut(std::uint32_t begin, std::uint32_t end) {
    auto at = seen_.lower_bound(begin);
    if (at != seen_.begin()) {
      auto& before = std::prev(at)->second;
      const std::uint32_t before_end = before.position + before.length;
      if (before_end > begin) {
        if (before_end > end) seen_.emplace(end, tail_of(before, end));
        before.length = begin - before.position;
      }
    }
    while (at != seen_.end() && at->first < end) {
      if (at->second.position + at->second.length > end) {
        seen_.emplace(end, tail_of(at->second, end));
      }
      at = seen_.erase(at);
    }
  }

 private:
  static SeenPiece tail_of(const SeenPiece& piece, std::uint32_t from) {
    const std::uint32_t dropped = from - piece.position;
    return {from, piece.length - dropped, piece.skip + dropped, piece.entry};
  }

  std::map<std::uint32_t, SeenPiece> seen_;
};

// The widest hole that must be bridged so that no more than max_runs are left; ties may leave
// fewer.
std::uint32_t bridged_hole(const std::vector<MergedRun>& runs, std::size_t max_runs) {
  std::vector<std::uint32_t> holes;
  holes.reserve(runs.size());
  for (std::size_t i = 1; i < runs.size(); ++i) {
    holes.push_back(runs[i].position - (runs[i - 1].position + runs[i - 1].length));
  }
  const std::size_t bridged = runs.size() - max_runs;
  std::nth_element(holes.begin(), holes.begin() + static_cast<std::ptrdiff_t>(bridged - 1),
                   holes.end());
  return holes[bridged - 1];
}

std::vector<MergedRun> join_runs(std::vector<MergedRun> runs, std::uint32_t widest_hole) {
  std::vector<MergedRun> joined;
  for (auto& run : runs) {
    if (!joined.empty() &&
        run.position - (joined.back().position + joined.back().length) <= widest_hole) {
      MergedRun& into = joined.back();
      into.length = run.position + run.length - into.position;
      into.pieces.insert(into.pieces.end(), run.pieces.begin(), run.pieces.end());
    } else {
      joined.push_back(std::move(run));
    }
  }
  return joined;
}

}  // namespace

std::vector<SeenPiece> seen_pieces(const EntryList& entries) {
  Coverage coverage;
  for (int i = 0; i < entries.size(); ++i) {
    const pb::SliceEntry& entry = entries[i];
    if (entry.length() == 0) continue;
    if (holds_bytes(entry)) {
      coverage.lay({entry.position(), entry.length(), 0, static_cast<std::size_t>(i)});
    } else {
      coverage.cut(entry.position(), entry.position() + entry.length());
    }
  }
  return coverage.pieces();
}

std::vector<MergedRun> plan_merge(const EntryList& entries, std::size_t max_runs) {
  std::vector<MergedRun> single;
  for (const SeenPiece& piece : seen_pieces(entries)) {
    single.push_back({piece.position, piece.length, {piece}});
  }
  std::vector<MergedRun> runs = join_runs(std::move(single), 0);
  if (runs.size() <= max_runs) return runs;
  const std::uint32_t widest = bridged_hole(runs, max_runs);
  return join_runs(std::move(runs), widest);
}

Status check_entries(const EntryList& entries) {
  for (const pb::SliceEntry& entry : entries) {
    const bool inside_chunk = std::uint64_t{entry.position()} + entry.length() <= kChunkSize;
    const std::uint64_t held =
        entry.kind() == pb::SliceEntry::INLINE ? entry.inline_data().size() : entry.slice_length();
    const bool inside_slice =
        !holds_bytes(entry) || std::uint64_t{entry.offset()} + entry.length() <= held;
    if (!inside_chunk || !inside_slice || entry.kind() == pb::SliceEntry::ORIGIN) {
      return Status(Errc::corrupt, "slice " + std::to_string(entry.slice()) +
                                       ": its entry reaches beyond the chunk or the slice");
    }
  }
  return {};
}

}  // namespace starlane::keeper
