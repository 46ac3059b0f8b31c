// One device of a block server: identity, segments, index, and the operations on its blocks. Any
// thread; every call blocks until done. Callers of puts and gets meet on short locks only, never
// over a transfer.
#pragma once
#include <atomic>

#include "block/identity.h"
#include "block/indexer.h"
#include "block/replay.h"
#include "disk/buffer_pool.h"
#include "disk/open_disk.h"

namespace starlane::block {

struct TargetOptions {
  TargetId id;
  std::string directory;
  std::string index_directory;  // empty: "index" in the directory
  DiskOptions disk;
  std::unique_ptr<Disk> device;  // in place of `directory`, which then stays empty
};

/// The same for all targets of a store.
struct Tuning {
  SegmentLog::Options segments;
  Milliseconds index_interval{1000};    // what is not durable becomes so within this
  std::uint64_t recent_bytes = 32_MiB;  // memory for what is not indexed yet
  std::uint64_t index_cache_bytes = 64_MiB;
  std::uint64_t reserve_bytes =
      64_MiB;          // kept free for removals and the index; at most a tenth of the device
  bool create = true;  // make a target where there is an empty directory, or none
};

struct TargetCounters {
  std::uint64_t puts = 0, put_bytes = 0, gets = 0, get_bytes = 0, removed_slices = 0;
  std::uint64_t corrupt = 0;  // bad copies found by gets and verify
  std::uint64_t io_errors = 0;
};

class Target {
 public:
  /// Errors, each one sentence that begins with the directory: busy, invalid, unsupported, corrupt,
  /// not_found, io, access.
  static Result<std::unique_ptr<Target>> open(TargetOptions options, const Tuning& tuning,
                                              const std::string& cluster, BufferPool& buffers);
  /// Writes the index. No call may be under way.
  ~Target();

  Status put(const PutBlock& request, BulkSource& data, Deadline deadline);
  Result<GetBlockReply> get(const GetBlock& request, BulkSink& out);
  Status sync();
  Status remove_slice(const SliceKey& slice);
  Result<BlockListing> list(const std::string& cursor, std::uint32_t limit);
  Result<BlockListing> verify(const std::string& cursor, std::uint32_t limit);
  TargetInfo info() const;
  TargetCounters counters() const;
  const ReplayResult& replayed() const { return replayed_; }

 private:
  struct Payload;
  struct Counters {  // statistics: no pairs
    std::atomic<std::uint64_t> puts = 0, put_bytes = 0, gets = 0, get_bytes = 0, removed_slices = 0,
                               corrupt = 0, io_errors = 0;
  };

  Target(std::unique_ptr<Disk> disk, const Identity& identity, const Tuning& tuning,
         BufferPool& buffers);
  static Result<std::unique_ptr<Disk>> open_device(TargetOptions& options, const Tuning& tuning);
  static Result<Identity> identify(Disk& disk, const TargetOptions& options, const Tuning& tuning,
                                   const std::string& cluster);
  static Result<Identity> initialise(Disk& disk, TargetId id, const std::string& cluster);
  Status start(const std::string& index_directory);

  Status put_claimed(const PutBlock& request, BulkSource& data);
  Status store(const PutBlock& request, BulkSource& data);
  Result<Payload> receive(BulkSource& data, MutableByteSpan small) const;
  Status write_record(const RecordHeader& header, const Payload& payload,
                      const SegmentLog::Range& range);
  Status take_space(std::uint64_t bytes);
  Status publish(const RecordHeader& header, const Payload& payload, const SegmentLog::Range& range,
                 Status written);
  bool is_direct() const { return traits_.alignment > 1; }

  Result<EntryPtr> find(const BlockId& block) const;
  Result<GetBlockReply> send(const Entry& entry, const GetBlock& request, BulkSink& out);
  Status send_stored(const Entry& entry, const GetBlock& request, BulkSink& out,
                     std::vector<std::uint32_t>& checksums);
  Result<bool> is_bad(const BlockId& block, const EntryPtr& entry);
  Status note(Status status);

  const std::unique_ptr<Disk> disk_;
  const Identity identity_;
  const Tuning tuning_;
  const DiskTraits traits_;
  BufferPool& buffers_;
  std::unique_ptr<Index> index_;
  Recent recent_;
  SegmentLog log_;
  std::unique_ptr<Indexer> indexer_;
  ReplayResult replayed_;
  std::atomic<std::int64_t> space_ =
      0;  // bytes that may be put before asking the device again; no pair
  Counters counters_;
};

}  // namespace starlane::block
