#include "placement/choose.h"

#include <algorithm>
#include <array>
#include <bit>

namespace starlane {
namespace placement {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr int kFractionBits = 48;
constexpr int kTableBits = 10;

/// log2(1 + i / 2^kTableBits) with kFractionBits, by squaring: bit after bit of the logarithm.
constexpr std::uint64_t log2_of_step(std::uint64_t i) {
  if (i == std::uint64_t{1} << kTableBits) return std::uint64_t{1} << kFractionBits;
  Wide x = Wide(i + (std::uint64_t{1} << kTableBits)) << (62 - kTableBits);  // in [1, 2), 62 bits
  std::uint64_t result = 0;
  for (int bit = 0; bit < kFractionBits; ++bit) {
    x = (x * x) >> 62;
    result <<= 1;
    if (x >> 63) {
      result |= 1;
      x >>= 1;
    }
  }
  return result;
}

constexpr auto make_table() {
  std::array<std::uint64_t, (1 << kTableBits) + 1> table{};
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = log2_of_step(i);
  return table;
}

constexpr auto kLog2 = make_table();

/// Finaliser "mix 13" of Stafford: every input bit reaches every output bit.
constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15ULL;

std::uint64_t hash_block(const BlockId& block) {
  std::uint64_t h = mix(block.owner.value + kStep);
  h = mix((h ^ block.slice.value) + kStep);
  return mix((h ^ block.index) + kStep);
}

std::uint64_t hash_target(std::uint64_t block, TargetId target) {
  return mix(block ^ mix(target.value + kStep));
}

struct Candidate {
  const Target* target = nullptr;
  std::uint64_t distance = 0;
  bool chosen = false;

  /// distance / weight is smaller: by cross multiplication, exact. Equal: the smaller id.
  bool before(const Candidate& other) const {
    const Wide mine = Wide(distance) * other.target->weight;
    const Wide theirs = Wide(other.distance) * target->weight;
    return mine != theirs ? mine < theirs : target->id < other.target->id;
  }
};

std::vector<Candidate> candidates_of(const ClusterMap& map, const BlockId& block) {
  std::vector<Candidate> result;
  result.reserve(map.targets.size());
  const std::uint64_t block_hash = hash_block(block);
  for (const Target& target : map.targets) {
    if (target.weight == 0 || target.state == TargetState::draining) continue;
    result.push_back({&target, distance(hash_target(block_hash, target.id)), false});
  }
  return result;
}

std::size_t copies_in_domain(const std::vector<const Target*>& chosen, const Target& target) {
  return static_cast<std::size_t>(std::ranges::count_if(
      chosen, [&](const Target* t) { return t->failure_domain == target.failure_domain; }));
}

/// The best candidate in the domains with the fewest copies so far; null when none is left.
Candidate* next_of(std::vector<Candidate>& candidates, const std::vector<const Target*>& chosen) {
  Candidate* best = nullptr;
  std::size_t best_shared = 0;
  for (Candidate& candidate : candidates) {
    if (candidate.chosen) continue;
    const std::size_t shared = copies_in_domain(chosen, *candidate.target);
    if (best == nullptr || shared < best_shared ||
        (shared == best_shared && candidate.before(*best))) {
      best = &candidate;
      best_shared = shared;
    }
  }
  return best;
}

}  // namespace

std::uint64_t hash(const BlockId& block, TargetId target) {
  return hash_target(hash_block(block), target);
}

std::uint64_t distance(std::uint64_t h) {
  h |= 1;  // log2(0) has no value
  const auto whole = static_cast<std::uint64_t>(63 - std::countl_zero(h));
  const std::uint64_t fraction = h << (63 - whole) << 1;  // below the leading bit, left-aligned
  const std::uint64_t step = fraction >> (64 - kTableBits);
  const std::uint64_t rest = (fraction << kTableBits) >> 32;
  const std::uint64_t log =
      (whole << kFractionBits) + kLog2[step] +
      static_cast<std::uint64_t>((Wide(kLog2[step + 1] - kLog2[step]) * rest) >> 32);
  return (std::uint64_t{64} << kFractionBits) - log;
}

}  // namespace placement

std::vector<TargetId> choose(const ClusterMap& map, BranchId owner, SliceId slice,
                             std::uint32_t index, std::size_t copies) {
  auto candidates = placement::candidates_of(map, {owner, slice, index});
  std::vector<const Target*> chosen;
  while (chosen.size() < copies) {
    placement::Candidate* next = placement::next_of(candidates, chosen);
    if (next == nullptr) break;
    next->chosen = true;
    chosen.push_back(next->target);
  }
  std::vector<TargetId> ids;
  ids.reserve(chosen.size());
  for (const Target* target : chosen) ids.push_back(target->id);
  return ids;
}

}  // namespace starlane
