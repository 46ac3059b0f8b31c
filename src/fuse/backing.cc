#include "fuse/backing.h"

#include <sys/ioctl.h>

#include <cerrno>
#include <unordered_set>

#include "client/takeover/records.h"
#include "common/errno.h"
#include "fuse/protocol.h"

namespace starlane::fuse {

Result<std::int32_t> BackingTable::acquire(std::uint64_t node, std::uint64_t handle, int fd) {
  MutexLock lock(m_);
  Backing& backing = by_node_[node];
  if (backing.opens == 0) {
    BackingMap map{fd, 0, 0};
    const int number = ::ioctl(device_, kIocBackingOpen, &map);
    if (number <= 0) {
      const int failure = errno;
      by_node_.erase(node);
      return system_error("the kernel refuses a cache file for passthrough", failure);
    }
    backing.number = number;
    if (ledger_ != nullptr)
      SL_TRY(ledger_->put_plain({client::Ledger::Kind::backing, node}, std::int32_t{number}));
  }
  ++backing.opens;
  node_of_handle_[handle] = node;
  return backing.number;
}

void BackingTable::release(std::uint64_t handle) {
  MutexLock lock(m_);
  const auto found = node_of_handle_.find(handle);
  if (found == node_of_handle_.end()) return;
  const auto backing = by_node_.find(found->second);
  node_of_handle_.erase(found);
  if (--backing->second.opens > 0) return;
  auto number = static_cast<std::uint32_t>(backing->second.number);
  ::ioctl(device_, kIocBackingClose, &number);
  if (ledger_ != nullptr) ledger_->erase({client::Ledger::Kind::backing, backing->first});
  by_node_.erase(backing);
}

void BackingTable::restore(std::uint32_t newest) {
  constexpr std::uint32_t kPerhapsLost = 64;
  MutexLock lock(m_);
  std::unordered_set<std::uint32_t> known;
  for (const auto& entry : ledger_->all(client::Ledger::Kind::backing)) {
    const auto number = client::plain_of<std::int32_t>(entry.value);
    if (!number) continue;
    by_node_[entry.key.a].number = *number;
    known.insert(static_cast<std::uint32_t>(*number));
  }
  for (const auto& entry : ledger_->all(client::Ledger::Kind::file)) {
    const auto file = client::plain_of<client::FileRecord>(entry.value);
    if (!file || file->passthrough == 0 || !by_node_.contains(file->node)) continue;
    ++by_node_[file->node].opens;
    node_of_handle_[entry.key.a] = file->node;
  }
  // One without an open: its daemon died before it had written the open down, or struck it out.
  std::erase_if(by_node_, [&](const auto& backing) {
    if (backing.second.opens != 0) return false;
    known.erase(static_cast<std::uint32_t>(backing.second.number));
    ledger_->erase({client::Ledger::Kind::backing, backing.first});
    return true;
  });
  for (std::uint32_t number = newest; number-- > 1 && newest - number <= kPerhapsLost;)
    if (!known.contains(number)) ::ioctl(device_, kIocBackingClose, &number);
}

std::size_t BackingTable::live() const {
  MutexLock lock(m_);
  return by_node_.size();
}

}  // namespace starlane::fuse
