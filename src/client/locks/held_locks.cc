#include "client/locks/held_locks.h"

#include "client/takeover/records.h"

namespace starlane::client {
namespace {

Ledger::Key ledger_key(const HeldLocks::Key& key, std::uint64_t handle) {
  const auto kind =
      key.kind == LockKind::flock ? Ledger::Kind::flock_owner : Ledger::Kind::record_owner;
  return {kind, handle, key.owner};
}

}  // namespace

Status HeldLocks::note(const Key& key, std::uint64_t handle) {
  MutexLock lock(m_);
  if (held_.size() >= kMaxOwners && !held_.contains(key))
    return {Errc::no_locks, "a mount serves locks of at most 65536 owners"};
  // Before the server is asked: a daemon that dies then leaves the next one the word to unlock.
  if (insert(key, handle)) write_down(key, handle, held_[key].attachment_epoch);
  return {};
}

void HeldLocks::write_down(const Key& key, std::uint64_t handle, std::uint64_t attachment_epoch) {
  if (ledger_ == nullptr) return;
  ledger_->note_plain(ledger_key(key, handle), LockRecord{attachment_epoch});
}

bool HeldLocks::insert(const Key& key, std::uint64_t handle) {
  held_[key].handles.insert(handle);
  count_ = held_.size();
  return by_handle_[handle].insert(key).second;
}

// Another request of the owner may have dropped it in the meantime.
void HeldLocks::granted(const Key& key, std::uint64_t handle, std::uint64_t attachment_epoch) {
  MutexLock lock(m_);
  insert(key, handle);
  held_[key].attachment_epoch = attachment_epoch;
  write_down(key, handle, attachment_epoch);
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
    if (ledger_ != nullptr) ledger_->erase(ledger_key(key, handle));
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
