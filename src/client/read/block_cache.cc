#include "client/read/block_cache.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace starlane::client {
namespace {

std::uint64_t mask_of(std::uint32_t first, std::uint32_t units) {
  return (units == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << units) - 1) << first;
}
bool has(std::uint64_t mask, std::uint32_t unit) { return (mask >> unit & 1) != 0; }

/// The order of a piece for `units`: rounded up where little is wasted, else down, and the rest is
/// for the next claim.
unsigned order_for(std::uint32_t units) {
  const std::uint32_t up = std::bit_ceil(units);
  const bool wasteful = up - units > units / 4;
  return static_cast<unsigned>(std::countr_zero(wasteful ? up / 2 : up));
}

/// Of the piece that holds so many bytes.
unsigned pool_order_for(std::uint64_t bytes) {
  return static_cast<unsigned>(
      std::countr_zero(std::bit_ceil(divide_up(bytes, MemoryPool::kUnit))));
}

}  // namespace

BlockCache::BlockCache(std::uint64_t bytes) : pool_(std::make_shared<MemoryPool>(bytes)) {}

std::shared_ptr<BlockCache::Block> BlockCache::find(Shard& shard, const BlockId& id) {
  const auto at = shard.index.find(id);
  if (at == shard.index.end()) return nullptr;
  shard.recent.splice(shard.recent.begin(), shard.recent, at->second);
  return *at->second;
}

std::uint32_t BlockCache::look(const Range& range, std::vector<Piece>& pieces) {
  Shard& shard = shard_of(range.block);
  MutexLock lock(shard.m);
  const auto block = find(shard, range.block);
  if (!block) return 0;
  std::uint32_t at = range.begin;
  bool joins = false;  // the last piece is ours and ends where the next may begin
  while (at < range.end && has(block->present, at / kUnit)) {
    const std::uint32_t end = std::min(range.end, at / kUnit * kUnit + kUnit);
    const ByteSpan bytes(block->at[at / kUnit] + at % kUnit, end - at);
    if (joins && pieces.back().bytes.data() + pieces.back().bytes.size() == bytes.data()) {
      pieces.back().bytes = {pieces.back().bytes.data(), pieces.back().bytes.size() + bytes.size()};
    } else {
      pieces.push_back({bytes, block});
    }
    joins = true;
    at = end;
  }
  return at - range.begin;
}

/// A run that lies in memory in one piece, or has none yet.
BlockCache::Run BlockCache::free_run(const Block& block, std::uint32_t first, std::uint32_t end,
                                     bool whole) {
  const std::uint64_t taken = block.present | block.fetching;
  while (first < end && has(taken, first)) ++first;
  Run run{first, 0};
  for (std::uint32_t unit = first; unit < end && !has(taken, unit); ++unit, ++run.units) {
    if (unit == first) continue;
    const std::byte* const previous = block.at[unit - 1];
    if (block.at[unit] != (previous == nullptr ? nullptr : previous + kUnit)) break;
  }
  const bool in_one_piece =
      run.units == 0 || block.at[first] != nullptr || (whole && block.memory.empty());
  if (!in_one_piece) run.units = std::min(run.units, std::uint32_t{1} << order_for(run.units));
  return run;
}

BlockCache::Claim BlockCache::claim(const Range& range, bool whole) {
  std::optional<MemoryPool::Piece>
      piece;  // taken without the lock, for what the last attempt asked for
  for (;;) {
    Attempt attempt = try_claim(range, whole, piece);
    if (piece) pool_->give(*piece);
    if (!attempt.wanted) return std::move(attempt.claim);
    piece = take_memory(*attempt.wanted);
  }
}

/// Takes `piece` when it fits; else says what memory it needs, or that there is nothing to claim.
BlockCache::Attempt BlockCache::try_claim(const Range& range, bool whole,
                                          std::optional<MemoryPool::Piece>& piece) {
  Shard& shard = shard_of(range.block);
  MutexLock lock(shard.m);
  const auto block = find_or_add(shard, range);
  const auto end = static_cast<std::uint32_t>(divide_up(std::min(range.end, block->length), kUnit));
  const Run run = free_run(*block, range.begin / kUnit, end, whole);
  if (run.units == 0) return {};
  if (block->at[run.first] == nullptr) {
    const bool all = whole && block->memory.empty();
    const Run home =
        all ? Run{0, static_cast<std::uint32_t>(divide_up(block->length, kUnit))} : run;
    const std::uint64_t bytes = std::min<std::uint64_t>(std::uint64_t{home.units} * kUnit,
                                                        block->length - home.first * kUnit);
    const auto order = pool_order_for(bytes);
    if (!piece || piece->order != order) return {{}, order};
    attach(*block, home, *std::exchange(piece, std::nullopt));
  }
  block->fetching |= mask_of(run.first, run.units);
  const std::uint32_t offset = run.first * kUnit;
  const std::uint32_t length = std::min(run.units * kUnit, block->length - offset);
  return {{block, run.first, run.units, offset, MutableByteSpan(block->at[run.first], length)},
          std::nullopt};
}

void BlockCache::attach(Block& block, Run home, const MemoryPool::Piece& piece) {
  block.memory.push_back(piece);
  for (std::uint32_t i = 0; i < home.units; ++i)
    block.at[home.first + i] = piece.at + std::size_t{i} * kUnit;
}

std::shared_ptr<BlockCache::Block> BlockCache::find_or_add(Shard& shard, const Range& range) {
  if (auto block = find(shard, range.block)) return block;
  auto block = std::make_shared<Block>(range.block, range.block_length, pool_);
  shard.recent.push_front(block);
  shard.index.emplace(range.block, shard.recent.begin());
  return block;
}

MemoryPool::Piece BlockCache::take_memory(unsigned order) {
  for (;;) {
    if (const auto piece = pool_->take(order)) return *piece;
    if (!evict_one()) return pool_->take_spare(order);
  }
}

/// False when every shard's oldest blocks are in use.
bool BlockCache::evict_one() {
  constexpr int kLookedAt = 16;
  for (std::size_t i = 0; i < kShards; ++i) {
    Shard& shard = shards_[hand_++ % kShards];
    std::shared_ptr<Block> victim;  // freed outside the lock
    MutexLock lock(shard.m);
    auto at = shard.recent.end();
    for (int looked = 0; looked < kLookedAt && at != shard.recent.begin(); ++looked) {
      --at;
      if (at->use_count() != 1 || (*at)->fetching != 0) continue;
      victim = *at;
      shard.index.erase(victim->id);
      shard.recent.erase(at);
      return true;
    }
  }
  return false;
}

void BlockCache::filled(const Claim& claim, const Status& status) {
  Shard& shard = shard_of(claim.block->id);
  MutexLock lock(shard.m);
  const std::uint64_t mask = mask_of(claim.first, claim.units);
  claim.block->fetching &= ~mask;
  if (status.ok()) claim.block->present |= mask;
  shard.filled.notify_all();
}

Status BlockCache::wait(const Range& range, const Interrupts::Scope& scope) {
  Shard& shard = shard_of(range.block);
  const std::uint32_t unit = range.begin / kUnit;
  MutexLock lock(shard.m);
  const auto block = find(shard, range.block);
  while (block && has(block->fetching, unit)) {
    shard.filled.wait_for(shard.m, Milliseconds(50));
    shard.m.unlock();
    const bool interrupted = scope.interrupted();
    shard.m.lock();
    if (interrupted) return Status(Errc::interrupted, "interrupted while a block was fetched");
  }
  return {};
}

}  // namespace starlane::client
