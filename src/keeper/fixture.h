// For tests: targets in memory that fail by seed, behind the interface of block servers; and a site
// with a metadata server, such targets and a client that writes real bytes. One thread, but for the
// targets: any.
#pragma once
#include <map>
#include <set>
#include <utility>

#include "codec/crc32c.h"
#include "common/mutex.h"
#include "common/rng.h"
#include "keeper/fsck.h"
#include "keeper/keeper.h"
#include "meta/members/fixture.h"
#include "placement/choose.h"

namespace starlane::keeper {

class FakeBlocks final : public BlockService {
 public:
  explicit FakeBlocks(std::vector<std::uint32_t> targets) {
    for (const std::uint32_t id : targets) targets_[TargetId(id)];
  }

  Status put(const Call&, const PutBlock& request, BulkSource& data) override {
    std::vector<std::byte> bytes(data.size());
    SL_TRY(data.read(bytes));
    MutexLock lock(m_);
    SL_TRY(fault(request.target));
    Target& target = targets_[request.target];
    if (checksum_units(bytes) != request.unit_checksums)
      return Status(Errc::corrupt, "checksums do not match");
    if (target.removed.contains({request.block.owner, request.block.slice}))
      return Status(Errc::fenced, "removed");
    const auto [at, added] = target.blocks.try_emplace(request.block, bytes);
    if (!added && at->second != bytes) return Status(Errc::exists, "other content");
    if (added) unsynced_.insert({request.target, request.block});
    return {};
  }
  Result<GetBlockReply> get(const Call&, const GetBlock& request, BulkSink& out) override {
    MutexLock lock(m_);
    SL_TRY(fault(request.target));
    Target& target = targets_[request.target];
    const auto at = target.blocks.find(request.block);
    if (at == target.blocks.end()) return Status(Errc::not_found, "no such block");
    if (target.damaged.contains(request.block)) return Status(Errc::corrupt, "damaged");
    if (std::uint64_t{request.offset} + request.length > at->second.size())
      return Status(Errc::invalid, "range");
    ByteSpan bytes = ByteSpan(at->second).subspan(request.offset, request.length);
    SL_TRY(out.write(bytes));
    GetBlockReply reply;
    for (std::uint64_t offset = request.offset; !bytes.empty();) {
      const auto n = std::min<std::size_t>(bytes.size(), kChecksumUnit - offset % kChecksumUnit);
      // On its way, once, after the store has looked at it.
      reply.checksums.push_back(crc32c(bytes.first(n)) ^
                                (garbled_.erase(request.block) > 0 ? 1U : 0U));
      bytes = bytes.subspan(n);
      offset += n;
    }
    return reply;
  }
  Status sync(const Call&, TargetId id) override {
    MutexLock lock(m_);
    SL_TRY(fault(id));
    std::erase_if(unsynced_, [&](const auto& put) { return put.first == id; });
    return {};
  }
  Status remove_slice(const Call&, TargetId id, BranchId owner, SliceId slice) override {
    MutexLock lock(m_);
    SL_TRY(fault(id));
    removed_while_unsynced_ |= !unsynced_.empty();
    Target& target = targets_[id];
    target.removed.insert({owner, slice});
    std::erase_if(target.blocks, [&](const auto& block) {
      return block.first.owner == owner && block.first.slice == slice;
    });
    return {};
  }
  Result<BlockListing> list(const Call&, TargetId id, const std::string& cursor,
                            std::uint32_t limit) override {
    MutexLock lock(m_);
    SL_TRY(fault(id));
    return page(targets_[id], cursor, limit, false);
  }
  Result<BlockListing> verify(const Call&, TargetId id, const std::string& cursor,
                              std::uint32_t limit) override {
    MutexLock lock(m_);
    SL_TRY(fault(id));
    return page(targets_[id], cursor, limit, true);
  }
  Result<std::vector<TargetInfo>> targets(const Call&) override {
    return Status(Errc::unsupported, "not here");
  }

  void fail_one_in(unsigned n, std::uint64_t seed) {
    MutexLock lock(m_);
    fail_one_in_ = n;
    rng_ = Rng(seed);
  }
  void set_away(std::uint32_t id, bool away) {
    MutexLock lock(m_);
    targets_[TargetId(id)].away = away;
  }
  std::set<BlockId> blocks() {
    MutexLock lock(m_);
    std::set<BlockId> all;
    for (const auto& [id, target] : targets_) {
      for (const auto& [block, bytes] : target.blocks) all.insert(block);
    }
    return all;
  }
  void lose(const BlockId& block) {
    MutexLock lock(m_);
    for (auto& [id, target] : targets_) target.blocks.erase(block);
  }
  void damage(const BlockId& block) {
    MutexLock lock(m_);
    for (auto& [id, target] : targets_) target.damaged.insert(block);
  }
  /// The next read of each block arrives damaged, after the store has found it good.
  void garble_next_reads() {
    MutexLock lock(m_);
    for (auto& [id, target] : targets_)
      for (const auto& [block, bytes] : target.blocks) garbled_.insert(block);
  }
  /// Whether blocks were removed while a power cut would still have taken others, which may replace
  /// them.
  bool removed_while_unsynced() {
    MutexLock lock(m_);
    return removed_while_unsynced_;
  }
  void plant(std::uint32_t id, const BlockId& block, std::size_t length) {
    MutexLock lock(m_);
    targets_[TargetId(id)].blocks[block] = std::vector<std::byte>(length);
  }

 private:
  struct Target {
    std::map<BlockId, std::vector<std::byte>> blocks;
    std::set<BlockId> damaged;
    std::set<std::pair<BranchId, SliceId>> removed;
    bool away = false;
  };
  Status fault(TargetId id) SL_REQUIRES(m_) {
    if (!targets_.contains(id)) return Status(Errc::not_found, "no such target here");
    if (targets_[id].away) return Status(Errc::unavailable, "away");
    if (fail_one_in_ > 0 && rng_.one_in(fail_one_in_)) return Status(Errc::io, "failed on demand");
    return {};
  }
  static BlockListing page(const Target& target, const std::string& cursor, std::uint32_t limit,
                           bool damaged) {
    std::size_t skip = cursor.empty() ? 0 : std::stoul(cursor);
    BlockListing listing;
    std::size_t at = 0;
    for (const auto& [block, bytes] : target.blocks) {
      if (at++ < skip) continue;
      if (at > skip + limit) {
        listing.cursor = std::to_string(skip + limit);
        break;
      }
      if (!damaged || target.damaged.contains(block)) {
        listing.blocks.push_back({block, static_cast<std::uint32_t>(bytes.size())});
      }
    }
    return listing;
  }

  Mutex m_;
  std::map<TargetId, Target> targets_ SL_GUARDED_BY(m_);
  std::set<BlockId> garbled_ SL_GUARDED_BY(m_);
  std::set<std::pair<TargetId, BlockId>> unsynced_ SL_GUARDED_BY(m_);
  bool removed_while_unsynced_ SL_GUARDED_BY(m_) = false;
  unsigned fail_one_in_ SL_GUARDED_BY(m_) = 0;
  Rng rng_ SL_GUARDED_BY(m_){1};
};

inline meta::Options short_lists() {
  meta::Options options;
  options.long_list = 8;
  return options;
}

/// Two targets, one volume, one client that writes.
struct KeptSite {
  KeptSite() {
    pb::RegisterTargetsRequest request;
    for (const std::uint32_t id : {1U, 2U}) {
      pb::Target* target = request.add_targets();
      target->set_id(id);
      target->set_weight(100);
      target->set_state("up");
      target->set_endpoint("here");
    }
    EXPECT_TRUE(site.ask(&MetaService::register_targets, request).ok());
    EXPECT_TRUE(site.create_volume("v").ok());
    EXPECT_TRUE(user.attach("v").ok());
    io.use(map_of(*site.ask(&MetaService::cluster_map, pb::Empty())).value());
  }

  /// As a client does: reserves, puts, commits. The slice.
  Result<std::uint64_t> write(std::uint64_t inode, std::uint64_t offset, const std::string& bytes) {
    const pb::ReserveSlicesReply reserved = SL_TRY(user.reserve(1));
    SL_TRY(put(reserved.first(), bytes));
    SL_TRY(user.commit(inode, offset, static_cast<std::uint32_t>(bytes.size()), reserved.first(),
                       reserved.batch()));
    return reserved.first();
  }
  Status put(std::uint64_t slice, const std::string& bytes) {
    for (std::uint32_t i = 0; i < blocks_in(bytes.size()); ++i) {
      const ByteSpan block = bytes_of(bytes).subspan(i * kBlockSize, block_length(bytes.size(), i));
      SL_TRY(io.put({}, {user.branch, SliceId(slice), i}, block));
    }
    return {};
  }
  /// The file's bytes in its first chunk, by its map.
  std::string read(std::uint64_t inode, std::uint32_t length) {
    pb::FileMapRequest request;
    user.fill(request.mutable_on());
    request.set_inode(inode);
    request.set_chunks(1);
    const auto map = site.ask(&MetaService::file_map, request);
    std::string bytes(length, '\0');
    for (const pb::Chunk& chunk : map->chunks()) {
      for (const pb::SliceEntry& entry : chunk.entries()) {
        std::string part(entry.length(), '\0');
        if (entry.kind() == pb::SliceEntry::ZERO) {
          bytes.replace(entry.position(), part.size(), part);
          continue;
        }
        EXPECT_TRUE(io.read({}, {BranchId(entry.owner()), SliceId(entry.slice())}, entry.offset(),
                            std::as_writable_bytes(std::span(part)))
                        .ok());
        bytes.replace(entry.position(), part.size(), part);
      }
    }
    return bytes;
  }
  std::size_t list_length(std::uint64_t inode) {
    pb::FileMapRequest request;
    user.fill(request.mutable_on());
    request.set_inode(inode);
    request.set_chunks(1);
    const auto map = site.ask(&MetaService::file_map, request);
    return map->chunks_size() == 0 ? 0 : static_cast<std::size_t>(map->chunks(0).entries_size());
  }
  FsckReport check(const FsckOptions& options = {}) {
    problems.clear();
    const auto report = fsck(site.server, blocks, {}, options,
                             [&](const FsckProblem& problem) { problems.push_back(problem); });
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    return report.ok() ? *report : FsckReport();
  }

  meta::Site site{short_lists()};
  FakeBlocks blocks{{1, 2}};
  SliceBlocks io{blocks, 1};
  meta::Client user{site};
  std::vector<FsckProblem> problems;  // of the last check
};

}  // namespace starlane::keeper
