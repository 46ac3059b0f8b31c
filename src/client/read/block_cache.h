// Blocks in memory, filled 64 KiB units at a time as they are read: keyed by BlockId, hence never
// stale, shared by all files. Reads get pieces that point into it; a unit is fetched by whoever
// claims it, once, while others wait. Bounded in bytes, least recently used blocks go first. Any
// thread.
#pragma once
#include <array>
#include <atomic>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "client/blocks/interrupts.h"
#include "client/read/memory_pool.h"
#include "client/vfs.h"
#include "common/bytes.h"
#include "common/ids.h"
#include "common/mutex.h"

namespace starlane::client {

class BlockCache {
  struct Block;

 public:
  explicit BlockCache(std::uint64_t bytes);

  /// Part of a block. length of the whole block: the last unit may be short.
  struct Range {
    BlockId block;
    std::uint32_t block_length = 0;
    std::uint32_t begin = 0, end = 0;
  };
  /// Units that the caller must fetch now, in one go, into `memory`, and then report by `filled`.
  struct Claim {
    std::shared_ptr<Block> block;
    std::uint32_t first = 0, units = 0;
    std::uint32_t offset = 0;  // in the block
    MutableByteSpan memory;
    explicit operator bool() const { return block != nullptr; }
  };

  /// Appends what is here of the front of `range` to `pieces` and answers how many bytes that is.
  std::uint32_t look(const Range& range, std::vector<Piece>& pieces);
  /// The first run of units of `range` that nobody has or fetches; nothing if there is none. whole:
  /// memory for the whole block in one piece, since the rest will follow.
  Claim claim(const Range& range, bool whole);
  /// ok: the memory holds the bytes. Otherwise the units are free to be claimed again.
  void filled(const Claim& claim, const Status& status);
  /// Until the first unit of `range` is no longer being fetched.
  Status wait(const Range& range, const Interrupts::Scope& scope);

  std::uint64_t used_bytes() const { return pool_->used_bytes(); }

 private:
  static constexpr std::size_t kShards = 16;
  static constexpr std::uint32_t kUnit = kChecksumUnit;
  static constexpr std::uint32_t kUnits = kBlockSize / kChecksumUnit;
  static_assert(kUnits == 64, "masks of units are 64 bits");

  struct Block {
    Block(BlockId block_id, std::uint32_t block_length, std::shared_ptr<MemoryPool> block_pool)
        : id(block_id), length(block_length), pool(std::move(block_pool)) {}
    ~Block() {
      for (const MemoryPool::Piece& piece : memory) pool->give(piece);
    }
    const BlockId id;
    const std::uint32_t length;
    const std::shared_ptr<MemoryPool> pool;
    std::uint64_t present = 0, fetching = 0;  // masks of units
    std::array<std::byte*, kUnits> at{};
    std::vector<MemoryPool::Piece> memory;
  };
  using Recent = std::list<std::shared_ptr<Block>>;  // most recent first
  struct Shard {
    Mutex m;
    CondVar filled;
    Recent recent SL_GUARDED_BY(m);
    std::unordered_map<BlockId, Recent::iterator> index SL_GUARDED_BY(m);
  };
  struct Run {
    std::uint32_t first = 0, units = 0;
  };

  struct Attempt {
    Claim claim;
    std::optional<unsigned> wanted;  // a piece of memory of this order, then try again
  };

  Shard& shard_of(const BlockId& id) { return shards_[std::hash<BlockId>()(id) % kShards]; }
  static std::shared_ptr<Block> find(Shard& shard, const BlockId& id) SL_REQUIRES(shard.m);
  static Run free_run(const Block& block, std::uint32_t first, std::uint32_t end, bool whole);
  Attempt try_claim(const Range& range, bool whole, std::optional<MemoryPool::Piece>& piece);
  static void attach(Block& block, Run home, const MemoryPool::Piece& piece);
  std::shared_ptr<Block> find_or_add(Shard& shard, const Range& range) SL_REQUIRES(shard.m);
  MemoryPool::Piece take_memory(unsigned order);
  bool evict_one();

  const std::shared_ptr<MemoryPool> pool_;
  std::array<Shard, kShards> shards_;
  std::atomic<std::size_t> hand_{0};  // which shard gives next; any value will do
};

}  // namespace starlane::client
