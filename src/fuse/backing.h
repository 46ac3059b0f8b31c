// The kernel's numbers for cache files that it reads itself (passthrough): one number for all opens
// of a node, given back after the last. Any thread.
#pragma once
#include <cstdint>
#include <unordered_map>

#include "client/takeover/ledger.h"
#include "common/mutex.h"
#include "common/status.h"

namespace starlane::fuse {

class BackingTable {
 public:
  /// device: of the connection; ledger: may be null. Both outlive the table.
  BackingTable(int device, client::Ledger* ledger) : device_(device), ledger_(ledger) {}

  /// Goes on with the numbers of an earlier daemon: they belong to the connection. newest: a number
  /// that was given just now; what the one before got shortly before and did not write down goes.
  void restore(std::uint32_t newest) SL_EXCLUDES(m_);

  /// The number to answer an open of `node` with. While another open of it lives, that one's
  /// number, whatever `fd` is: the kernel refuses a second.
  Result<std::int32_t> acquire(std::uint64_t node, std::uint64_t handle, int fd) SL_EXCLUDES(m_);
  /// The handle is closed; nothing if it was not a passthrough one.
  void release(std::uint64_t handle) SL_EXCLUDES(m_);
  std::size_t live() const SL_EXCLUDES(m_);

 private:
  struct Backing {
    std::int32_t number = 0;
    std::uint64_t opens = 0;
  };

  const int device_;
  client::Ledger* const ledger_;
  mutable Mutex m_;  // held over the two ioctls, which do not wait
  std::unordered_map<std::uint64_t, Backing> by_node_ SL_GUARDED_BY(m_);
  std::unordered_map<std::uint64_t, std::uint64_t> node_of_handle_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::fuse
