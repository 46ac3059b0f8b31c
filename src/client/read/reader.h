// Committed bytes of files: from maps to blocks to pieces of cache memory, with read-ahead on a
// bounded pool. What is dirty on this host is laid over by the caller. Any thread; blocks.
#pragma once
#include <memory>
#include <vector>

#include "client/blocks/block_client.h"
#include "client/meters.h"
#include "client/read/block_cache.h"
#include "client/read/file_maps.h"
#include "client/read/read_streams.h"
#include "common/thread_pool.h"

namespace starlane::client {

class Reader {
 public:
  struct Options {
    std::uint64_t cache_bytes = 1_GiB;
    std::uint64_t max_window_bytes = 64_MiB;  // ahead of one stream
    std::size_t threads = 8;                  // fetches at once beside those of readers themselves
    std::size_t max_map_segments = 1 << 20;
    std::shared_ptr<Meters> meters = std::make_shared<Meters>();
  };
  Reader(MetaService& meta, BlockClient& blocks, Attachments& attachments, Interrupts& interrupts,
         const Options& options);

  /// One look at a file: everything read through it is of one version, until a block is gone and
  /// its map has changed.
  class Look {
   public:
    std::uint64_t length() const { return view_.length; }

   private:
    friend class Reader;
    FileKey file_;
    FileMaps::View view_;
  };
  Result<Look> look(FileKey file, const FileState& known, std::uint64_t begin, std::uint64_t end,
                    const Interrupts::Scope& scope);

  struct Advice {
    bool sequential = false;
    bool waited = false;  // out: something was not here yet
  };
  /// Appends the bytes of [begin, end), which lies inside the look; what is beyond its length reads
  /// as zeros. not_found: a block is gone: `changed` says whether another look is worth it.
  Status read(const Look& look, std::uint64_t begin, std::uint64_t end, Advice& advice,
              std::vector<Piece>& pieces, const Interrupts::Scope& scope);
  /// Straight into `out`, past the cache.
  Status read_into(const Look& look, std::uint64_t begin, const Landing& out,
                   const Interrupts::Scope& scope);
  /// Starts to fetch; what does not fit into the pool's queue is left out.
  void fetch_ahead(const Look& look, std::uint64_t begin, std::uint64_t end);
  /// After not_found: drops the map, looks again, and answers whether the file is another by now.
  Result<bool> changed(const Look& look, std::uint64_t begin, std::uint64_t end,
                       const Interrupts::Scope& scope);

  FileMaps& maps() { return maps_; }
  std::uint64_t max_window() const { return max_window_; }
  std::uint64_t cached_bytes() const { return cache_.used_bytes(); }

 private:
  /// Part of one block.
  struct Source {
    BlockCache::Range range;
    std::uint32_t layout = 0;
    BranchId branch;  // whose attachment reads it
  };
  template <typename Visit>
  static Status visit(const Look& look, std::uint64_t begin, std::uint64_t end, Visit visit);
  static std::vector<SliceId> slices_in(const Look& look, std::uint64_t begin, std::uint64_t end);
  template <typename Visit>
  static Status visit_blocks(const Look& look, const Segment& segment, std::uint64_t length,
                             Visit visit);

  Status read_segment(const Look& look, const Segment& segment, std::uint64_t length,
                      Advice& advice, std::vector<Piece>& pieces, const Interrupts::Scope& scope);
  Status read_block(Source source, Advice& advice, std::vector<Piece>& pieces,
                    const Interrupts::Scope& scope);
  Status fetch(const Source& source, const BlockCache::Claim& claim,
               BlockClient::Persistence persistence, const Interrupts::Scope& scope);
  void fetch_ahead(const Source& source);
  Status get_into(const Source& source, const Landing& out, const Interrupts::Scope& scope);

  BlockClient& blocks_;
  Attachments& attachments_;
  Interrupts& interrupts_;
  const std::shared_ptr<Meters> meters_;
  const std::uint64_t max_window_;
  FileMaps maps_;
  BlockCache cache_;
  ThreadPool pool_;  // last: its work uses the others
};

/// Pieces of nothing but zeros.
void append_zeros(std::uint64_t length, std::vector<Piece>& pieces);

}  // namespace starlane::client
