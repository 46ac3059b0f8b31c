// What every metadata operation gets: the engine, the clock, id allocation, and `change_branch`,
// the one way to change a branch: it reads the head, checks and guards it with the caller's session
// and attachment (fencing), and keeps the outcome for a repeated call. Context: any thread. Change:
// one attempt, one thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/clock.h"
#include "common/ids.h"
#include "common/mutex.h"
#include "common/status.h"
#include "kv/engine.h"
#include "meta/keys.h"
#include "meta/locks/lock_waits.h"
#include "meta/members/escrow_calls.h"
#include "meta/members/lease_watch.h"
#include "meta/rows.h"

namespace google::protobuf {
class MessageLite;
}

namespace starlane::meta {

struct Options {
  std::string cluster{};       // uuid, told to clients; meta::Server makes none up
  Milliseconds lease{20'000};  // a session is dead when no heartbeat came for so long
  Milliseconds heartbeat{4'000};
  std::uint32_t max_links = 65'000;   // names of one file
  std::uint32_t long_list = 256;      // entries of a chunk from which it is to be merged
  std::uint32_t max_list = 4'096;     // entries of a chunk beyond which commits wait for the merge
  std::uint32_t chunks_a_step = 256;  // changed by one transaction of truncate, free and so on
};

/// Numbers from a pool in the engine, `stride` at a time: what is left of a stride is lost with the
/// process, so no number is ever given twice, not after power loss either. Blocks while a stride is
/// fetched, durably.
class IdAllocator {
 public:
  IdAllocator(kv::Engine& engine, Pool pool, std::uint64_t stride);
  /// `count` numbers in a row (at most the stride), the first returned; from the pool of `branch`
  /// (0: the cluster's).
  Result<std::uint64_t> take(BranchId branch, std::uint32_t count = 1) SL_EXCLUDES(m_);

 private:
  struct Range {
    std::uint64_t next = 0;
    std::uint64_t end = 0;
  };
  std::optional<std::uint64_t> take_cached(BranchId branch, std::uint32_t count) SL_EXCLUDES(m_);
  void keep(BranchId branch, Range range) SL_EXCLUDES(m_);

  kv::Engine& engine_;
  const Pool pool_;
  const std::uint64_t stride_;
  Mutex m_;
  std::unordered_map<BranchId, std::deque<Range>> ranges_ SL_GUARDED_BY(m_);  // at most kBranches
};

/// What the targets last said of their space, for statfs: figures of this process, not rows.
class Capacity {
 public:
  struct Space {
    std::uint64_t total_bytes = 0;
    std::uint64_t free_bytes = 0;
  };
  void report(TargetId target, Space space) SL_EXCLUDES(m_) {
    MutexLock lock(m_);
    spaces_[target] = space;
  }
  Space sum() const SL_EXCLUDES(m_) {
    MutexLock lock(m_);
    Space all;
    for (const auto& [target, space] : spaces_) {
      all.total_bytes += space.total_bytes;
      all.free_bytes += space.free_bytes;
    }
    return all;
  }

 private:
  mutable Mutex m_;
  std::unordered_map<TargetId, Space> spaces_ SL_GUARDED_BY(m_);  // as many as the map has targets
};

struct Context {
  Context(kv::Engine& engine_in, const Clock& clock_in, Options options_in);

  Result<InodeId> new_inode(BranchId branch);
  Result<SliceId> new_slices(std::uint32_t count);

  /// Runs `body` on a snapshot, again if the snapshot was too old. Commits nothing.
  Status read(const std::function<Status(kv::Transaction&)>& body) const;

  kv::Engine& engine;
  const Clock& clock;
  const Options options;
  IdAllocator inodes;
  IdAllocator slices;
  IdAllocator branches;  // also for images: one number space
  IdAllocator views;
  IdAllocator sessions;
  IdAllocator attachments;  // epochs
  Capacity capacity;
  LeaseWatch watch;  // which sessions stand still
  LockWaits lock_waits;
  EscrowCalls escrow_calls;
};

/// Who changes which branch.
struct Access {
  BranchId branch;
  SessionId session;                   // none: trusted code of this process, not fenced
  std::uint64_t request = 0;           // 0: the outcome is not kept
  std::uint64_t attachment_epoch = 0;  // 0: not checked
  bool upkeep = false;                 // housekeeping, which goes on in a frozen branch
  bool advisory = false;               // locks: also where the session may not write
};

using Rows = std::vector<std::optional<kv::Row>>;

/// One attempt at a change of a branch, after head, session and attachment were checked and
/// guarded.
struct Change {
  Context& context;
  kv::Transaction& t;
  const Access& access;
  HeadRow head;
  WallTime now;
  std::uint64_t now_ns = 0;

  BranchId branch() const { return access.branch; }
  RowHeader header(std::uint8_t flags = 0) const { return {flags, head.epoch}; }
  /// Adds to the live usage of the branch, within its quota.
  void charge(std::int64_t bytes, std::int64_t inodes);
};

/// Runs `body` in transactions until one commits. `keys` are read together with the head and handed
/// to `body`, in order; nothing protects them until `body` says so. With access.request, `reply` is
/// kept as the outcome in the same transaction, and a repeated call is answered from there without
/// `body`. Errors of ours: not_found (no such branch), read_only, fenced (the session or the
/// attachment has ended), and what the engine's commit gives.
Status change_branch(Context& context, const Access& access, std::uint16_t method,
                     const std::vector<std::string>& keys, google::protobuf::MessageLite* reply,
                     const std::function<Status(Change&, Rows&)>& body,
                     kv::Durability durability = kv::Durability::ordered);

/// The head as `t` sees it; not_found when there is none. Neither checks the state nor guards.
Result<HeadRow> read_head(kv::Transaction& t, BranchId branch);

/// Decodes row `row` of type Row if it is there; not_found with "no such <what>" otherwise.
template <typename Row>
Result<Row> need(const std::optional<kv::Row>& row, const char* what) {
  if (!row) return {Errc::not_found, std::string("no such ") + what};
  return Row::decode(row->value);
}

/// Nanoseconds since 1970 within what 63 bits hold, and back.
std::uint64_t to_ns(const WallTime& time);
WallTime from_ns(std::uint64_t ns);

}  // namespace starlane::meta
