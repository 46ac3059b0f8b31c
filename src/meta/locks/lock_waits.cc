#include "meta/locks/lock_waits.h"

namespace starlane::meta {

Status LockWaits::enter(const Waiter& waiter, FileKey file, Nanoseconds now) {
  MutexLock lock(m_);
  forget_old(now);
  const auto known = waits_.find(waiter);
  if (known != waits_.end()) {
    known->second.asked = now;
    return {};
  }
  if (waits_.size() >= kMaxWaits) return {Errc::no_locks, "too many requests wait for locks"};
  waits_.emplace(waiter, Wait{file, {}, now, 0});
  by_file_[file].insert(waiter);
  return {};
}

bool LockWaits::block(const Waiter& waiter, std::uint32_t pid, const std::vector<FileLock>& by,
                      Nanoseconds now) {
  MutexLock lock(m_);
  const auto at = waits_.find(waiter);
  if (at == waits_.end()) return true;
  std::set<LockOwner> owners;
  for (const FileLock& one : by) owners.insert(one.of);
  std::vector<LockOwner> blockers(owners.begin(), owners.end());
  if (leads_to(waiter.owner, pid, blockers, now)) return false;
  at->second.blockers = std::move(blockers);
  at->second.pid = pid;
  return true;
}

// A wait ends only when all its blockers have gone, so that any way back is one too many.
bool LockWaits::leads_to(const LockOwner& target, std::uint32_t pid,
                         const std::vector<LockOwner>& from, Nanoseconds now) const {
  std::vector<LockOwner> open = from;
  std::set<LockOwner> seen;
  while (!open.empty()) {
    const LockOwner owner = open.back();
    open.pop_back();
    if (owner == target) return true;
    if (!seen.insert(owner).second) continue;
    for (auto at = waits_.lower_bound({owner, 0}); at != waits_.end() && at->first.owner == owner;
         ++at) {
      if (now - at->second.asked > kForgotten) continue;
      const bool same_process = at->second.pid == pid && owner.session == target.session;
      if (pid != 0 && same_process && owner != target) continue;
      open.insert(open.end(), at->second.blockers.begin(), at->second.blockers.end());
    }
  }
  return false;
}

void LockWaits::leave(const Waiter& waiter) {
  MutexLock lock(m_);
  const auto at = waits_.find(waiter);
  if (at != waits_.end()) erase(at);
}

LockWaits::Waits::iterator LockWaits::erase(Waits::iterator at) {
  const auto file = by_file_.find(at->second.file);
  file->second.erase(at->first);
  if (file->second.empty()) by_file_.erase(file);
  return waits_.erase(at);
}

void LockWaits::forget_old(Nanoseconds now) {
  if (now - last_forgotten_ < kForgotten) return;
  last_forgotten_ = now;
  std::unordered_set<SessionId> waiting;
  for (auto at = waits_.begin(); at != waits_.end();) {
    const bool old = now - at->second.asked > kForgotten;
    if (!old) waiting.insert(at->first.owner.session);
    at = old ? erase(at) : std::next(at);
  }
  std::erase_if(woken_, [&](SessionId session) { return !waiting.contains(session); });
}

// Whom it waits for is not known until it has looked again: what it found before may be gone.
void LockWaits::wake(const Waiter& waiter, Wait& wait) {
  wait.blockers.clear();
  woken_.insert(waiter.owner.session);
}

void LockWaits::changed(FileKey file) {
  MutexLock lock(m_);
  const auto at = by_file_.find(file);
  if (at == by_file_.end()) return;
  for (const Waiter& waiter : at->second) wake(waiter, waits_.at(waiter));
  woken_or_late_.notify_all();
}

void LockWaits::all_changed() {
  MutexLock lock(m_);
  for (auto& [waiter, wait] : waits_) wake(waiter, wait);
  woken_or_late_.notify_all();
}

void LockWaits::await(SessionId session, Deadline deadline) {
  MutexLock lock(m_);
  while (woken_.erase(session) == 0) {
    const Nanoseconds left = deadline.left();
    if (left <= Nanoseconds::zero()) return;
    woken_or_late_.wait_for(m_, left);
  }
}

}  // namespace starlane::meta
