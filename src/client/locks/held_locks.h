// Who may hold locks through this mount: what has to be unlocked when a file is closed, and what
// was lost with a session. The server has the ranges; this has owners. Any thread; under the lock
// nothing is taken but the ledger's.
#pragma once
#include <atomic>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "client/takeover/ledger.h"
#include "client/vfs.h"
#include "common/ids.h"
#include "common/mutex.h"

namespace starlane::client {

class HeldLocks {
 public:
  static constexpr std::size_t kMaxOwners = 65'536;  // of files, of one mount

  /// ledger: what it has is written there for the next daemon; null: there is none. Outlives it.
  explicit HeldLocks(Ledger* ledger) : ledger_(ledger) {}

  struct Key {
    FileKey file;
    LockKind kind = LockKind::record;
    std::uint64_t owner = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  /// Before the server is asked, so that a close in the meantime knows of it. no_locks: too many.
  Status note(const Key& key, std::uint64_t handle) SL_EXCLUDES(m_);
  /// Granted under this attachment (by its first epoch), by a request through the handle; now, or
  /// to the daemon before.
  void granted(const Key& key, std::uint64_t handle, std::uint64_t attachment_epoch)
      SL_EXCLUDES(m_);
  /// Nothing: it holds none. 0: it has asked for one, and is not known to hold it.
  std::optional<std::uint64_t> find(const Key& key) SL_EXCLUDES(m_);
  /// Owners that locked through the handle, or asked for it.
  std::vector<Key> through(std::uint64_t handle) SL_EXCLUDES(m_);
  /// All is unlocked. Handles through which nobody else holds any.
  std::vector<std::uint64_t> drop(const Key& key) SL_EXCLUDES(m_);

 private:
  struct Held {
    std::uint64_t attachment_epoch = 0;
    std::set<std::uint64_t> handles;
  };

  /// Whether it was not there.
  bool insert(const Key& key, std::uint64_t handle) SL_REQUIRES(m_);
  void write_down(const Key& key, std::uint64_t handle, std::uint64_t attachment_epoch)
      SL_REQUIRES(m_);

  Ledger* const ledger_;
  std::atomic<std::size_t> count_{0};  // of held_: for the close that has nothing to do here
  Mutex m_;
  std::map<Key, Held> held_ SL_GUARDED_BY(m_);                          // at most kMaxOwners
  std::map<std::uint64_t, std::set<Key>> by_handle_ SL_GUARDED_BY(m_);  // the same, by handle
};

}  // namespace starlane::client
