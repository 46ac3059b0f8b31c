// Ordered byte strings in memory, with views, and with what a real disk does in bad moments:
// failures on demand, and power loss that takes back what was not synced. For tests. Any thread.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/mutex.h"
#include "kv/occ/storage.h"

namespace starlane::kv::mem {

/// What survives the process: storages come and go over one disk.
class Disk : public std::enable_shared_from_this<Disk> {
 public:
  /// The next `count` calls answer `why`; writes before they do anything.
  void fail_writes(int count, Status why) SL_EXCLUDES(m_);
  void fail_syncs(int count, Status why) SL_EXCLUDES(m_);
  void set_room(Status room) SL_EXCLUDES(m_);
  /// Power loss: of the writes since the last sync, the first `kept` survive.
  void lose_unsynced(std::size_t kept) SL_EXCLUDES(m_);
  std::size_t unsynced() const SL_EXCLUDES(m_);
  int syncs() const SL_EXCLUDES(m_);

  std::unique_ptr<occ::Storage> open();

 private:
  friend class MemStorage;
  friend class MemView;
  using Batch = std::vector<std::pair<std::string, std::optional<std::string>>>;
  struct Past {
    std::uint64_t at;
    std::optional<std::string> value;
  };
  using History = std::vector<Past>;  // Oldest first.

  void apply(const Batch& batch) SL_REQUIRES(m_);
  static void settle(const Batch& batch, std::map<std::string, std::string>& rows);
  static const std::optional<std::string>& value_at(const History& history, std::uint64_t at);

  mutable Mutex m_;
  std::uint64_t now_ SL_GUARDED_BY(m_) = 0;
  std::map<std::string, History, std::less<>> rows_ SL_GUARDED_BY(m_);
  std::multiset<std::uint64_t> views_ SL_GUARDED_BY(m_);
  std::map<std::string, std::string> synced_ SL_GUARDED_BY(m_);
  std::deque<Batch> unsynced_
      SL_GUARDED_BY(m_);  // Bounded: the oldest become synced, as a kernel does it.
  int failing_writes_ SL_GUARDED_BY(m_) = 0;
  int failing_syncs_ SL_GUARDED_BY(m_) = 0;
  int syncs_ SL_GUARDED_BY(m_) = 0;
  Status write_failure_ SL_GUARDED_BY(m_);
  Status sync_failure_ SL_GUARDED_BY(m_);
  Status room_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::kv::mem
