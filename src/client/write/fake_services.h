// A metadata server of files without names, and block servers in memory, for tests of FileIo: with
// the rules of the real ones (reservations and their bits, versions, checksums, a block never
// changes) and failures on demand and by seed.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "client/attachments.h"
#include "client/file_io.h"
#include "common/mutex.h"
#include "common/rng.h"
#include "proto/block_service.h"
#include "proto/meta_service.h"

namespace starlane::client {

/// What may go wrong with a call; none unless asked for.
struct Faults {
  std::uint64_t one_in =
      0;  // unavailable or busy before, or timeout after it has happened; 0: never
  std::uint64_t corrupt_one_in = 0;  // bytes damaged on the way
};

class FakeBlocks final : public BlockService {
 public:
  explicit FakeBlocks(std::uint64_t seed) : rng_(seed) {}

  Status put(const Call& call, const PutBlock& request, BulkSource& data) override;
  Result<GetBlockReply> get(const Call& call, const GetBlock& request, BulkSink& out) override;
  Status sync(const Call& call, TargetId target) override;
  Status remove_slice(const Call& call, TargetId target, BranchId owner, SliceId slice) override;
  Result<BlockListing> list(const Call&, TargetId, const std::string&, std::uint32_t) override;
  Result<BlockListing> verify(const Call&, TargetId, const std::string&, std::uint32_t) override;
  Result<std::vector<TargetInfo>> targets(const Call&) override;

  void set_faults(Faults faults);
  /// Every put and get is answered with this, until it is ok.
  void fail_all(Status status);
  void fail_puts(Status status);
  /// Runs before each get, without a lock.
  void before_get(std::function<void()> hook) { before_get_ = std::move(hook); }
  bool has(BranchId owner, SliceId slice, std::uint32_t stored_bytes, bool synced);
  /// The block is gone from every target.
  void lose(BranchId owner, SliceId slice);
  /// Every copy on this target is damaged.
  void damage(TargetId target);
  std::uint64_t got_bytes();
  std::size_t blocks();

 private:
  struct Stored {
    std::vector<std::byte> bytes;
    std::vector<std::uint32_t> sums;
    bool synced = false;
    bool damaged = false;
  };
  using Key = std::pair<TargetId, BlockId>;
  Status fault_before() SL_REQUIRES(m_);
  bool fault_after() SL_REQUIRES(m_);

  Mutex m_;
  Rng rng_ SL_GUARDED_BY(m_);
  Faults faults_ SL_GUARDED_BY(m_);
  Status all_, puts_ SL_GUARDED_BY(m_);
  std::map<Key, Stored> stored_ SL_GUARDED_BY(m_);
  std::set<std::pair<BranchId, SliceId>> removed_ SL_GUARDED_BY(m_);
  std::uint64_t got_bytes_ SL_GUARDED_BY(m_) = 0;
  std::function<void()> before_get_;
};

/// Knows no call.
class NoMeta : public MetaService {
 public:
#define SL_REFUSE(number, method, Request, Reply)                       \
  Status method(const Call&, const pb::Request&, pb::Reply*) override { \
    return Status(Errc::not_implemented, #method);                      \
  }
  SL_META_METHODS(SL_REFUSE)
#undef SL_REFUSE
};

/// Knows what the bytes of files need.
class FakeMeta final : public NoMeta {
 public:
  FakeMeta(FakeBlocks& blocks, std::uint64_t seed) : blocks_(blocks), rng_(seed) {}

  Status cluster_map(const Call&, const pb::Empty&, pb::ClusterMap* reply) override;
  Status file_map(const Call&, const pb::FileMapRequest&, pb::FileMapReply* reply) override;
  Status reserve_slices(const Call&, const pb::ReserveSlicesRequest&,
                        pb::ReserveSlicesReply* reply) override;
  Status commit(const Call&, const pb::CommitRequest&, pb::CommitReply* reply) override;
  Status set_attributes(const Call&, const pb::SetAttributesRequest&,
                        pb::Attributes* reply) override;
  Status flush(const Call&, const pb::FlushRequest&, pb::Empty* reply) override;
  Status escrow(const Call&, const pb::EscrowRequest&, pb::EscrowReply* reply) override;

  void set_faults(Faults faults);
  void set_targets(std::vector<pb::Target> targets);
  /// The session's calls are answered fenced.
  void fence(SessionId session);
  /// Runs before each commit, without a lock.
  void before_commit(std::function<void()> hook) { before_commit_ = std::move(hook); }

  /// From now on there is a quota, of which so much is left. Counted by the lengths of files.
  void set_room(std::uint64_t bytes);
  /// Runs before each call of escrow, without a lock.
  void before_escrow(std::function<void()> hook) { before_escrow_ = std::move(hook); }

  using NoMeta::create;
  FileState create(FileKey file);
  FileState truncate(FileKey file, std::uint64_t length);
  /// Another client's write of one slice that is stored already.
  FileState remote_commit(FileKey file, const pb::SliceEntry& entry);
  /// The keeper's merge of the first chunk into one slice that is stored already: the same version.
  void merge(FileKey file, const pb::SliceEntry& entry);
  FileState state(FileKey file);
  std::vector<pb::SliceEntry> entries(FileKey file, std::uint32_t chunk);
  std::uint64_t commits();
  /// All that was set on it, by commits and by calls of set_attributes; how many of these.
  pb::SetAttributesRequest set(FileKey file);
  std::uint64_t sets();
  std::uint64_t map_calls();
  bool durable(FileKey file);

 private:
  struct File {
    std::uint64_t version = 1, length = 0;
    std::map<std::uint32_t, std::vector<pb::SliceEntry>> chunks;
    bool durable = true;
    pb::SetAttributesRequest set;
  };
  Status fault_before() SL_REQUIRES(m_);
  bool fault_after() SL_REQUIRES(m_);
  Status apply(const pb::CommitRequest& request, pb::CommitReply* reply) SL_REQUIRES(m_);
  Status take_room(const pb::CommitRequest& request) SL_REQUIRES(m_);
  Status check_stored(const pb::CommitRequest& request) SL_REQUIRES(m_);

  FakeBlocks& blocks_;
  Mutex m_;
  Rng rng_ SL_GUARDED_BY(m_);
  Faults faults_ SL_GUARDED_BY(m_);
  std::map<FileKey, File> files_ SL_GUARDED_BY(m_);
  std::map<std::uint64_t, std::uint64_t> reserved_ SL_GUARDED_BY(m_);  // batch, bits
  std::set<SessionId> fenced_ SL_GUARDED_BY(m_);
  std::vector<pb::Target> targets_ SL_GUARDED_BY(m_);
  std::uint64_t map_epoch_ SL_GUARDED_BY(m_) = 1;
  std::uint64_t next_slice_ SL_GUARDED_BY(m_) = 64;
  std::uint64_t commits_ SL_GUARDED_BY(m_) = 0;
  std::uint64_t sets_ SL_GUARDED_BY(m_) = 0;
  std::uint64_t map_calls_ SL_GUARDED_BY(m_) = 0;
  bool limited_ SL_GUARDED_BY(m_) = false;
  std::uint64_t room_ SL_GUARDED_BY(m_) = 0;    // neither used nor set aside
  std::uint64_t escrow_ SL_GUARDED_BY(m_) = 0;  // set aside
  std::function<void()> before_commit_, before_escrow_;
};

class FakeAttachments final : public Attachments {
 public:
  Result<Attachment> attachment(BranchId branch, std::uint64_t unique) override;
  void fenced(BranchId branch, const Attachment& under) override;

 private:
  Mutex m_;
  std::map<BranchId, Attachment> now_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::client
