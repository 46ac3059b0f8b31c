// This client's session with the metadata service and what it has attached: heartbeats, leases, and
// a new session when the server ended the old one. One thread beats, a few carry out recalls of
// leases; every method may be called by any thread. Lock: m_, never held over a call.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "client/attachments.h"
#include "client/session/meta_retry.h"
#include "client/session/requests.h"
#include "client/session/signals.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/mutex.h"
#include "common/thread_pool.h"

namespace starlane::client {

/// A volume, or one version of a data set.
struct AttachTarget {
  std::string volume;
  std::string image_name;
  std::string image_version;
  bool read_only = false;
  friend bool operator==(const AttachTarget&, const AttachTarget&) = default;
};

/// A branch attached to this client. The flags are read on every request, without a lock.
class Attached {
 public:
  Attached(AttachTarget target_in, BranchId branch_in, ViewId view_in, bool frozen_in)
      : target(std::move(target_in)), branch(branch_in), view(view_in), frozen(frozen_in) {}

  const AttachTarget target;
  const BranchId branch;
  const ViewId view;
  const bool frozen;  // nothing in it will ever change

  bool gone() const { return gone_.load(std::memory_order_acquire); }
  /// Of the present attachment, whichever process of the session began it: what was locked under
  /// another one is lost.
  std::uint64_t locks_epoch() const { return locks_epoch_.load(std::memory_order_acquire); }
  /// Since when this client alone has the branch; nothing when it has not, or cannot be sure any
  /// more. What was learnt after that is right as long as this holds.
  std::optional<Nanoseconds> exclusive_since(Nanoseconds now) const {
    const std::int64_t since = since_.load(std::memory_order_acquire);
    if (since == 0 || now.count() >= until_.load(std::memory_order_acquire)) return std::nullopt;
    return Nanoseconds(since);
  }

  /// Work that relies on exclusivity beyond one look at it, and does not outlive a recall.
  class Reliance {
   public:
    Reliance() = default;
    explicit Reliance(Attached* of) : of_(of) {}
    Reliance(Reliance&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
    Reliance& operator=(Reliance&&) = delete;
    ~Reliance() {
      if (of_ != nullptr) of_->relying_.fetch_sub(1);
    }
    explicit operator bool() const { return of_ != nullptr; }

   private:
    Attached* of_ = nullptr;
  };
  /// Empty when the branch is shared. Keep it short: a recall waits.
  Reliance rely(Nanoseconds now) {
    relying_.fetch_add(1);
    Reliance reliance(this);
    if (!exclusive_since(now)) return Reliance();
    return reliance;
  }

  /// The kernel may believe until then that a name does not exist: a recall waits for it.
  void promised_absence(Nanoseconds until) {
    std::int64_t seen = absence_until_.load(std::memory_order_relaxed);
    while (seen < until.count() && !absence_until_.compare_exchange_weak(seen, until.count())) {
    }
  }

 private:
  friend class Sessions;
  // Pairs: written by Sessions under its lock, read by everyone. 0: shared.
  std::atomic<std::int64_t> since_{0};
  std::atomic<std::int64_t> until_{0};
  std::atomic<std::int64_t> absence_until_{0};  // pairs with the recall
  std::atomic<int> relying_{0};                 // pairs with the recall, which clears since_ first
  std::atomic<bool> gone_{false};
  std::atomic<std::uint64_t> locks_epoch_{0};  // written under Sessions::m_
  // Guarded by Sessions::m_.
  SessionId session_;
  std::uint64_t epoch_ = 0;
  bool usable_ = false;  // false: to be attached again
  bool recalling_ = false;
};

/// What a mount does when the server says something. Called from threads of Sessions, no lock held.
class SessionListener {
 public:
  virtual ~SessionListener() = default;
  /// Unlinked files that are open here.
  virtual std::vector<FileKey> held_unlinked() = 0;
  virtual void unlinked(FileKey file) = 0;
  /// The branch is not exclusive any more: everything written is committed, caches that relied on
  /// it are dropped.
  virtual Status recall(BranchId branch) = 0;
  virtual void gone(BranchId branch) = 0;
  /// Somebody else needs what is set aside here of the branch's quota.
  virtual void escrow_wanted(BranchId branch) = 0;
};

class Ledger;

struct SessionOptions {
  std::string host;
  std::string purpose;
  Milliseconds longest_heartbeat{1000};  // a recall is heard after at most so long
  std::size_t recall_threads = 2;
  RetryOptions retry;
  Ledger* ledger = nullptr;  // whose session is gone on with, if it has one; outlives the Sessions
};

class Sessions final : public Attachments {
 public:
  /// Opens a session; waits at most `patience` for a server that is away (unavailable, timeout).
  static Result<std::unique_ptr<Sessions>> open(MetaService& meta, const Clock& clock,
                                                SessionOptions options, Nanoseconds patience);
  ~Sessions() override;
  Sessions(const Sessions&) = delete;
  Sessions& operator=(const Sessions&) = delete;

  /// Before the first attach; the listener outlives `close`, or is taken away with nullptr.
  void listen(SessionListener* listener) SL_EXCLUDES(m_);
  /// Detaches everything and ends the session; every wait ends. Idempotent.
  void close() SL_EXCLUDES(m_);

  /// Waits while another client gives up its lease. Attaching what is attached answers the same
  /// object.
  Result<std::shared_ptr<Attached>> attach(const AttachTarget& target, std::uint64_t unique)
      SL_EXCLUDES(m_);
  void detach(BranchId branch) SL_EXCLUDES(m_);
  /// What the process before had attached, for this one; calls of that one which are still under
  /// way fail from then on. `continued`: nobody ended it meanwhile. Waits as attach does; `gone`
  /// when it is not to be had any more.
  struct Taken {
    std::shared_ptr<Attached> attached;
    bool continued = false;
  };
  Taken take_over(const AttachTarget& target, BranchId branch, ViewId view, bool frozen)
      SL_EXCLUDES(m_);
  /// One that is not to be had any more.
  static std::shared_ptr<Attached> gone(const AttachTarget& target, BranchId branch, ViewId view,
                                        bool frozen);

  Result<Attachment> attachment(BranchId branch, std::uint64_t unique = 0) override SL_EXCLUDES(m_);
  void fenced(BranchId branch, const Attachment& under) override SL_EXCLUDES(m_);

  SessionId id() SL_EXCLUDES(m_);
  Requests& requests() { return requests_; }
  Signals& signals() { return signals_; }
  MetaRetry& retry() { return retry_; }
  MetaService& meta() { return meta_; }
  const Clock& clock() const { return clock_; }
  /// The newest epoch of the cluster map that a heartbeat told of.
  std::uint64_t map_epoch() const { return map_epoch_.load(std::memory_order_relaxed); }

  /// One heartbeat now, from the caller's thread: for tests that do not wait.
  Status beat_now() SL_EXCLUDES(m_);

 private:
  struct Opened;
  Sessions(MetaService& meta, const Clock& clock, SessionOptions options);

  Result<Opened> open_session(const std::string& nonce, Nanoseconds patience);
  void run() SL_EXCLUDES(m_);
  Status beat() SL_EXCLUDES(m_, beating_);
  bool may_beat() SL_EXCLUDES(m_);
  void apply(const pb::HeartbeatReply& reply, SessionId session, Nanoseconds sent_at)
      SL_EXCLUDES(m_);
  void apply_attachment(const pb::AttachmentState& state, Nanoseconds now) SL_REQUIRES(m_);
  void renew(SessionId lost) SL_REQUIRES(beating_) SL_EXCLUDES(m_);
  bool attach_again() SL_EXCLUDES(m_);
  bool attach_again(const std::shared_ptr<Attached>& attached, SessionId session) SL_EXCLUDES(m_);
  Result<pb::AttachReply> ask_attach(const AttachTarget& target, SessionId session,
                                     bool take_over = false);
  std::string new_nonce();
  void adopt(Attached& attached, const pb::AttachReply& reply, SessionId session) SL_REQUIRES(m_);
  void start_recall(const std::shared_ptr<Attached>& attached) SL_REQUIRES(m_);
  void carry_out_recall(const std::shared_ptr<Attached>& attached, const Attachment& under)
      SL_EXCLUDES(m_);
  void await_reliance(const Attached& attached);
  void make_shared(Attached& attached) SL_REQUIRES(m_);
  void mark_gone(const std::shared_ptr<Attached>& attached) SL_EXCLUDES(m_);
  SessionListener* enter_listener() SL_EXCLUDES(m_);
  void leave_listener() SL_EXCLUDES(m_);
  Nanoseconds pause() SL_REQUIRES(m_);

  MetaService& meta_;
  const Clock& clock_;
  const SessionOptions options_;
  Signals signals_;
  MetaRetry retry_;
  Requests requests_;
  std::atomic<std::uint64_t> map_epoch_{0};  // for its reader a hint

  Mutex beating_;  // held over one heartbeat and its reply, so that replies are applied in order:
                   // no request waits for it
  std::uint64_t unlinked_cursor_ SL_GUARDED_BY(beating_) = 0;

  Mutex m_;
  CondVar changed_;
  SessionId session_ SL_GUARDED_BY(m_);
  Nanoseconds lease_ SL_GUARDED_BY(m_){0};
  Nanoseconds heartbeat_ SL_GUARDED_BY(m_){0};
  Nanoseconds alive_until_ SL_GUARDED_BY(m_){0};  // boot clock: the session lives at least so long
  bool last_beat_failed_ SL_GUARDED_BY(m_) = false;
  bool wake_ SL_GUARDED_BY(m_) = false;
  bool stopping_ SL_GUARDED_BY(m_) = false;
  bool closed_ SL_GUARDED_BY(m_) = false;
  SessionListener* listener_ SL_GUARDED_BY(m_) = nullptr;
  int in_listener_ SL_GUARDED_BY(m_) = 0;
  std::unordered_map<BranchId, std::shared_ptr<Attached>> attached_ SL_GUARDED_BY(m_);
  std::unordered_set<std::string> attaching_ SL_GUARDED_BY(m_);

  std::unique_ptr<ThreadPool> recalls_;
  std::thread thread_;
};

}  // namespace starlane::client
