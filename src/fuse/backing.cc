#include "fuse/backing.h"

#include <sys/ioctl.h>

#include <cerrno>

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
  by_node_.erase(backing);
}

std::size_t BackingTable::live() const {
  MutexLock lock(m_);
  return by_node_.size();
}

}  // namespace starlane::fuse
