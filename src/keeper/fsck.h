// The check of a whole cluster: what metadata refers to against the blocks that targets hold, and
// metadata's rows against each other. It changes nothing and may run while the cluster is in use:
// what looked wrong is looked at twice. One run, one thread; memory is bounded by going over
// everything several times.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "common/bytes.h"
#include "common/ids.h"
#include "proto/block_service.h"
#include "proto/call.h"
#include "proto/meta_service.h"

namespace starlane::keeper {

struct FsckOptions {
  bool verify_blocks = false;  // also read every block back and check it
  std::size_t slices_in_memory =
      4'000'000;              // about 70 bytes each; more slices are checked in several passes
  std::uint32_t page = 4096;  // rows or blocks of one call
};

struct FsckProblem {
  enum class Kind : std::uint8_t {
    rows,      // metadata contradicts itself
    missing,   // a file refers to a block that no target has: its bytes are lost
    unsynced,  // the same, but it was written shortly before a crash and may never have been
               // synced: no damage, and what was promised
    wrong,    // a block does not have the length that its slice says, or cannot belong to any slice
    corrupt,  // a block's bytes do not match their checksums
    orphan,   // nothing refers to a block: space is lost, no bytes
  } kind = Kind::rows;
  std::string text;  // one sentence
  BlockId block;     // of all but rows
  TargetId target;   // where it lies; none of missing and unsynced
  FileKey file;      // of missing and unsynced: whose bytes they are
  std::uint32_t chunk = 0;
};
std::string_view name_of(FsckProblem::Kind kind);

struct FsckReport {
  std::uint64_t inodes = 0, entries = 0;  // rows checked
  std::uint64_t references = 0;           // to slices with blocks
  std::uint64_t live = 0, dead = 0, reserved = 0;
  std::uint64_t targets = 0, blocks = 0, block_bytes = 0;
  std::uint64_t verified_blocks = 0;
  std::uint64_t rows = 0, missing = 0, wrong = 0, corrupt = 0,
                orphans = 0;   // problems of each kind
  std::uint64_t unsynced = 0;  // told, and no problem
  bool clean() const { return rows + missing + wrong + corrupt + orphans == 0; }
};

/// Told of each problem, from the calling thread, as it is found.
using FsckTold = std::function<void(const FsckProblem&)>;

/// blocks: answers for every target of the map. An error means that the check could not be finished
/// (a target is away).
Result<FsckReport> fsck(MetaService& meta, BlockService& blocks, const Call& call,
                        const FsckOptions& options, const FsckTold& told);

}  // namespace starlane::keeper
