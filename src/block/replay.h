// Finds again, when a target is opened, what its segments hold behind the marks of the index: what
// was put since the index was last written, or everything if the index was lost. Torn and dead
// records become holes. One thread, before the target serves.
#pragma once
#include "block/indexer.h"
#include "disk/buffer_pool.h"

namespace starlane::block {

struct ReplayResult {
  std::uint64_t blocks = 0;        // found again
  std::uint64_t dead_records = 0;  // of removed slices, or written twice
  std::uint64_t torn_bytes = 0;    // neither zero nor a whole record
};

class Replay {
 public:
  Replay(SegmentLog& log, Index& index, Recent& recent, Indexer& indexer, BufferPool& buffers,
         std::uint64_t salt, std::uint64_t alignment);
  Result<ReplayResult> run();

 private:
  struct Window;
  Status scan(std::uint64_t segment, std::uint64_t from);
  /// The record that begins at `at`, if there is a whole one.
  Result<std::optional<RecordHeader>> record_at(Window& window, std::uint64_t at);
  Status take(const RecordHeader& header, ByteSpan payload);
  Status take_block(const RecordHeader& header, ByteSpan payload);
  Status take_fences(ByteSpan payload);

  SegmentLog& log_;
  Index& index_;
  Recent& recent_;
  Indexer& indexer_;
  BufferPool& buffers_;
  const std::uint64_t salt_;
  const std::uint64_t alignment_;
  ReplayResult result_;
};

}  // namespace starlane::block
