// The block store as its callers see it, in this process (block::Store) or over the wire
// (rpc::BlockStub). Any thread; every call blocks until done. A block is written once and never
// changes.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "common/bulk.h"
#include "common/ids.h"
#include "common/status.h"
#include "proto/call.h"

namespace starlane {

/// accepted: survives kill -9 of the server. durable: survives power loss as well.
enum class Safety : std::uint8_t { accepted = 0, durable = 1 };

struct PutBlock {
  TargetId target;
  BlockId block;
  Safety safety = Safety::accepted;
  /// CRC32C of each 64 KiB unit of the block, the last one possibly shorter, as the writer computed
  /// them.
  std::vector<std::uint32_t> unit_checksums;
};

struct GetBlock {
  TargetId target;
  BlockId block;
  std::uint32_t offset = 0;
  std::uint32_t length = 0;  // the range must lie inside the block
  // The server compares whole units with their checksums too, which else is the reader's to do:
  // for a reader that found them wrong, and to whom corrupt then says where they lie.
  bool check = false;
};

/// Checksums of exactly the bytes sent: cut at the block's 64 KiB boundaries, so the first and last
/// piece may be shorter than a unit. Whole units carry the writer's own.
struct GetBlockReply {
  std::vector<std::uint32_t> checksums;
};

struct BlockInfo {
  BlockId block;
  std::uint32_t length = 0;
};

struct BlockListing {
  std::vector<BlockInfo> blocks;  // in id order
  std::string cursor;             // for the next call; empty at the end
};

struct TargetInfo {
  TargetId target;
  std::uint64_t capacity_bytes = 0;
  std::uint64_t free_bytes = 0;
  std::uint64_t stored_bytes = 0;  // payload of live blocks
  std::uint64_t blocks = 0;
  bool healthy = true;
  std::string directory;
  std::string device;  // "io_uring, O_DIRECT", for people
};

class BlockService {
 public:
  virtual ~BlockService() = default;

  /// Stores a block of data.size() bytes (1 to kBlockSize), all or nothing. A second put of the
  /// same id is ok if length and checksums agree. Errors: corrupt (bytes do not match the
  /// checksums), exists (other content under this id), fenced (the slice was removed), no_space,
  /// not_found (no such target here), io, busy.
  virtual Status put(const Call& call, const PutBlock& request, BulkSource& data) = 0;

  /// Sends exactly request.length verified bytes into `out`. Errors: not_found, corrupt (never
  /// sends bad bytes), invalid, io, busy.
  virtual Result<GetBlockReply> get(const Call& call, const GetBlock& request, BulkSink& out) = 0;

  /// Makes every put of the target that returned durable. Concurrent callers share one flush.
  virtual Status sync(const Call& call, TargetId target) = 0;

  /// Removes all blocks of a slice and remembers it, durably, so that a late put is refused.
  /// Idempotent.
  virtual Status remove_slice(const Call& call, TargetId target, BranchId owner, SliceId slice) = 0;

  virtual Result<BlockListing> list(const Call& call, TargetId target, const std::string& cursor,
                                    std::uint32_t limit) = 0;

  /// Reads a target's every block back and checks it: those that fail, for scrub and fsck.
  /// Resumable by cursor.
  virtual Result<BlockListing> verify(const Call& call, TargetId target, const std::string& cursor,
                                      std::uint32_t limit) = 0;

  /// The targets that are served here.
  virtual Result<std::vector<TargetInfo>> targets(const Call& call) = 0;
};

}  // namespace starlane
