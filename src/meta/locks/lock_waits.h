// Who waits for a lock at this server, and for whom: wakes sessions when a file's locks change, and
// finds that a wait would never end. Of this process alone: the locks themselves are rows, so all
// that a restart, or another server over the same engine, costs is that those who wait find out
// when they ask again, as they do within seconds. Any thread. Lock: m_, a leaf.
#pragma once
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "common/clock.h"
#include "common/ids.h"
#include "common/mutex.h"
#include "meta/locks/lock_list.h"

namespace starlane::meta {

class LockWaits {
 public:
  static constexpr std::size_t kMaxWaits = 65'536;
  static constexpr Nanoseconds kForgotten = std::chrono::seconds(10);  // unless asked again

  struct Waiter {
    LockOwner owner;
    std::uint64_t number = 0;  // which of the owner's waits
    friend auto operator<=>(const Waiter&, const Waiter&) = default;
  };

  /// From now on changes of the file's locks wake the session: before the locks are looked at, so
  /// that none is missed. no_locks: too many wait.
  Status enter(const Waiter& waiter, FileKey file, Nanoseconds now) SL_EXCLUDES(m_);
  /// What it found in its way. False: one of these waits for it, perhaps through others. pid: of
  /// the process that waits; 0: unknown. Another owner of the same process is a lock of an open
  /// file (OFD), which a thread holds that is not the one that waits: no circle goes through it.
  bool block(const Waiter& waiter, std::uint32_t pid, const std::vector<FileLock>& by,
             Nanoseconds now) SL_EXCLUDES(m_);
  void leave(const Waiter& waiter) SL_EXCLUDES(m_);

  /// Locks of the file became fewer or weaker.
  void changed(FileKey file) SL_EXCLUDES(m_);
  /// A session or an attachment ended, with all its locks.
  void all_changed() SL_EXCLUDES(m_);

  /// Sleeps until something that the session waits for has changed since it last asked, or the
  /// deadline.
  void await(SessionId session, Deadline deadline) SL_EXCLUDES(m_);

 private:
  struct Wait {
    FileKey file;
    std::vector<LockOwner> blockers;
    Nanoseconds asked{0};
    std::uint32_t pid = 0;
  };
  using Waits = std::map<Waiter, Wait>;

  void wake(const Waiter& waiter, Wait& wait) SL_REQUIRES(m_);
  void forget_old(Nanoseconds now) SL_REQUIRES(m_);
  Waits::iterator erase(Waits::iterator at) SL_REQUIRES(m_);
  bool leads_to(const LockOwner& target, std::uint32_t pid, const std::vector<LockOwner>& from,
                Nanoseconds now) const SL_REQUIRES(m_);

  Mutex m_;
  CondVar woken_or_late_;
  Waits waits_ SL_GUARDED_BY(m_);  // at most kMaxWaits
  std::unordered_map<FileKey, std::set<Waiter>> by_file_ SL_GUARDED_BY(m_);
  std::unordered_set<SessionId> woken_ SL_GUARDED_BY(m_);  // of those that wait
  Nanoseconds last_forgotten_ SL_GUARDED_BY(m_){0};
};

}  // namespace starlane::meta
