#include "client/locks/held_locks.h"

namespace starlane::client {

Status HeldLocks::note(const Key& key, std::uint64_t handle) {
  MutexLock lock(m_);
  if (held_.size() >= kMaxOwners && !held_.contains(key))
    return {Errc::no_locks, "a mount serves locks of at most 65536 owners"};
  insert(key, handle);
  return {};
}

void HeldLocks::insert(const Key& key, std::uint64_t handle) {
  held_[key].handles.insert(handle);
  by_handle_[handle].insert(key);
  count_ = held_.size();
}

// Another request of the owner may have dropped it in the meantime.
void HeldLocks::granted(const Key& key, std::uint64_t handle, std::uint64_t attachment_epoch) {
  MutexLock lock(m_);
  insert(key, handle);
  held_[key].attachment_epoch = attachment_epoch;
}

std::optional<std::uint64_t> HeldLocks::find(const Key& key) {
  if (count_ == 0) return std::nullopt;
  MutexLock lock(m_);
  const auto at = held_.find(key);
  if (at == held_.end()) return std::nullopt;
  return at->second.attachment_epoch;
}

std::vector<HeldLocks::Key> HeldLocks::through(std::uint64_t handle) {
  if (count_ == 0) return {};
  MutexLock lock(m_);
  const auto at = by_handle_.find(handle);
  if (at == by_handle_.end()) return {};
  return {at->second.begin(), at->second.end()};
}

std::vector<std::uint64_t> HeldLocks::drop(const Key& key) {
  std::vector<std::uint64_t> bare;
  MutexLock lock(m_);
  const auto at = held_.find(key);
  if (at == held_.end()) return bare;
  for (const std::uint64_t handle : at->second.handles) {
    const auto keys = by_handle_.find(handle);
    keys->second.erase(key);
    if (!keys->second.empty()) continue;
    by_handle_.erase(keys);
    bare.push_back(handle);
  }
  held_.erase(at);
  count_ = held_.size();
  return bare;
}

}  // namespace starlane::client
