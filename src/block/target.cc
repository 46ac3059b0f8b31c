#include "block/target.h"

#include <algorithm>

#include "codec/mac.h"
#include "common/log.h"

namespace starlane::block {
namespace {

constexpr const char* kIdentity = "identity";

std::string cursor_of(const BlockId& block) {
  char text[41];
  std::snprintf(text, sizeof text, "%016lx%016lx%08x", block.owner.value, block.slice.value,
                block.index);
  return text;
}

Result<std::optional<BlockId>> block_of(const std::string& cursor) {
  if (cursor.empty()) return std::optional<BlockId>();
  if (cursor.size() != 40 || cursor.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return Status(Errc::invalid, "a cursor of a block listing is damaged");
  }
  const auto number = [&](std::size_t from, std::size_t n) {
    return std::stoull(cursor.substr(from, n), nullptr, 16);
  };
  return std::optional(BlockId{BranchId(number(0, 16)), SliceId(number(16, 16)),
                               static_cast<std::uint32_t>(number(32, 8))});
}

}  // namespace

Target::Target(std::unique_ptr<Disk> disk, const Identity& identity, const Tuning& tuning,
               BufferPool& buffers)
    : disk_(std::move(disk)),
      identity_(identity),
      tuning_(tuning),
      traits_(disk_->traits()),
      buffers_(buffers),
      log_(*disk_, tuning.segments) {}

Target::~Target() {
  if (indexer_ == nullptr) return;
  indexer_->stop();
  if (indexer_->write_now().ok()) log_.trim();  // else the next open replays
}

Result<std::unique_ptr<Target>> Target::open(TargetOptions options, const Tuning& tuning,
                                             const std::string& cluster, BufferPool& buffers) {
  if (!options.id) return Status(Errc::invalid, "a block target needs a number above 0");
  SL_TRY(check_cluster_name(cluster));
  const std::string name = options.device ? options.device->directory() : options.directory;
  auto disk = open_device(options, tuning);
  if (!disk.ok()) return disk.status();
  if (const Status locked = (*disk)->lock(); !locked.ok()) return locked;
  const auto identity = identify(**disk, options, tuning, cluster);
  if (!identity.ok()) return identity.status().with(name);
  std::unique_ptr<Target> target(new Target(std::move(*disk), *identity, tuning, buffers));
  const std::string index =
      options.index_directory.empty() ? name + "/index" : options.index_directory;
  if (const Status started = target->start(index); !started.ok()) return started.with(name);
  return target;
}

Result<std::unique_ptr<Disk>> Target::open_device(TargetOptions& options, const Tuning& tuning) {
  if (options.device) return std::move(options.device);
  if (options.directory.empty()) return Status(Errc::invalid, "a block target needs a directory");
  options.disk.create = tuning.create;
  return open_disk(options.directory, options.disk);
}

Result<Identity> Target::identify(Disk& disk, const TargetOptions& options, const Tuning& tuning,
                                  const std::string& cluster) {
  const auto text = disk.load(kIdentity);
  if (text.code() == Errc::not_found && tuning.create) {
    return initialise(disk, options.id, cluster);
  }
  if (text.code() == Errc::not_found) return Status(Errc::not_found, "there is no block target");
  if (!text.ok()) return text.status();
  const Identity identity = SL_TRY(decode_identity(*text));
  if (identity.cluster != cluster) {
    return Status(Errc::invalid,
                  "it belongs to cluster " + identity.cluster + ", not to " + cluster);
  }
  if (identity.target != options.id) {
    return Status(Errc::invalid, "it is target " + std::to_string(identity.target.value) +
                                     ", not " + std::to_string(options.id.value));
  }
  return identity;
}

Result<Identity> Target::initialise(Disk& disk, TargetId id, const std::string& cluster) {
  for (const std::string& name : SL_TRY(disk.list())) {
    if (name == "lock" || name == "identity.new" || name == "lost+found/") continue;
    return Status(Errc::invalid, "it holds " + name + " and is not a block target of Starlane");
  }
  Identity identity{cluster, id, 0};
  SL_TRY(fill_random(std::as_writable_bytes(std::span(&identity.salt, 1))));
  SL_TRY(disk.save(kIdentity, encode(identity)));
  return identity;
}

Status Target::start(const std::string& index_directory) {
  bool fresh = false;
  auto index = Index::open(index_directory, tuning_.index_cache_bytes, fresh);
  if (index.code() == Errc::corrupt || index.code() == Errc::invalid) {
    return Status(index.code(), "the index is damaged (" + index.status().text() + "); move " +
                                    index_directory + " away to have it rebuilt");
  }
  index_ = SL_TRY(std::move(index));
  Indexer::Options options;
  options.interval = tuning_.index_interval;
  options.recent_bytes = tuning_.recent_bytes;
  options.salt = identity_.salt;
  auto indexer = std::make_unique<Indexer>(*disk_, *index_, log_, recent_, options);
  SL_TRY(indexer->open());
  SL_TRY(log_.open(indexer->marks()));
  Replay replay(log_, *index_, recent_, *indexer, buffers_, identity_.salt, traits_.alignment);
  replayed_ = SL_TRY(replay.run());
  if (replayed_.blocks + replayed_.dead_records + replayed_.torn_bytes != 0) {
    SL_LOG(info, "event=replayed target={} blocks={} dead_records={} torn_bytes={} index={}",
           identity_.target.value, replayed_.blocks, replayed_.dead_records, replayed_.torn_bytes,
           fresh ? "rebuilt" : "kept");
  }
  indexer_ = std::move(indexer);
  indexer_->start("index-" + std::to_string(identity_.target.value));
  return {};
}

Status Target::note(Status status) {
  if (status.code() == Errc::io) counters_.io_errors.fetch_add(1, std::memory_order_relaxed);
  return status;
}

Status Target::sync() { return note(log_.sync()); }

Status Target::remove_slice(const SliceKey& slice) {
  bool pending = false;
  const bool fenced = SL_TRY(index_->is_fenced(slice, pending));
  if (fenced && !pending) return {};
  // The fence first: whatever happens now, no put can bring the slice back.
  IndexBatch batch;
  batch.fence(slice, true);
  if (!fenced) SL_TRY(note(index_->apply(batch)));
  for (const auto& [block, entry] : recent_.remove(slice)) {
    (void)log_.release(entry->segment, entry->offset, entry->record_length);
  }
  if (!fenced) counters_.removed_slices.fetch_add(1, std::memory_order_relaxed);
  return {};
}

Result<BlockListing> Target::list(const std::string& cursor, std::uint32_t limit) {
  const auto after = SL_TRY(block_of(cursor));
  if (cursor.empty()) SL_TRY(indexer_->write_now());  // only the index is in order
  BlockListing listing;
  if (limit == 0) return Status(Errc::invalid, "a block listing needs a limit above 0");
  SL_TRY(index_->for_each(after, [&](const BlockId& block, const EntryPtr& entry) {
    if (listing.blocks.size() == limit) {
      listing.cursor = cursor_of(listing.blocks.back().block);
      return false;
    }
    listing.blocks.push_back({block, entry ? entry->length : 0});
    return true;
  }));
  return listing;
}

Result<BlockListing> Target::verify(const std::string& cursor, std::uint32_t limit) {
  const auto after = SL_TRY(block_of(cursor));
  if (cursor.empty()) SL_TRY(indexer_->write_now());
  if (limit == 0) return Status(Errc::invalid, "a verification needs a limit above 0");
  BlockListing listing;
  std::uint32_t seen = 0;
  std::string last;
  SL_TRY(index_->for_each(after, [&](const BlockId& block, const EntryPtr& entry) {
    if (seen++ == limit) {
      listing.cursor = last;
      return false;
    }
    const auto bad = is_bad(block, entry);
    if (!bad.ok() || *bad) listing.blocks.push_back({block, entry ? entry->length : 0});
    last = cursor_of(block);
    return true;
  }));
  return listing;
}

TargetInfo Target::info() const {
  TargetInfo info;
  const auto space = disk_->space();
  const Totals totals = indexer_->totals();
  info.target = identity_.target;
  info.capacity_bytes = space.ok() ? space->capacity_bytes : 0;
  info.free_bytes = space.ok() ? space->free_bytes : 0;
  info.stored_bytes = totals.bytes + recent_.payload_bytes();
  info.blocks = totals.blocks + recent_.blocks();
  info.healthy = space.ok() && indexer_->last_failure().ok();
  info.directory = disk_->directory();
  info.device = disk_->describe();
  return info;
}

TargetCounters Target::counters() const {
  const auto read = [](const std::atomic<std::uint64_t>& n) {
    return n.load(std::memory_order_relaxed);
  };
  return {read(counters_.puts),      read(counters_.put_bytes),      read(counters_.gets),
          read(counters_.get_bytes), read(counters_.removed_slices), read(counters_.corrupt),
          read(counters_.io_errors)};
}

}  // namespace starlane::block
