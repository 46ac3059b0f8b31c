// What the kernel's file and directory handles stand for. Any thread.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "client/file_io.h"
#include "client/handles/open_files.h"
#include "client/vfs.h"
#include "client/views/views.h"
#include "common/mutex.h"
#include "common/status.h"

namespace starlane::client {

struct FileHandle {
  Node node;
  View* view = nullptr;
  std::shared_ptr<OpenFile> file;
  std::uint32_t flags = 0;
  bool writer = false;
  bool direct = false;
  bool passthrough = false;
  std::shared_ptr<ReadStreams> streams;
  std::atomic<bool> wrote{false};  // for itself: whether a close has anything to wait for
  // The attachment under which a lock was last taken through it; 0: none is held. Pairs with
  // itself.
  std::atomic<std::uint64_t> locked_under{0};
};

/// Objects by number; numbers are not used again, by a later generation of the daemon neither: the
/// kernel may close one twice.
template <typename T>
class HandleTable {
 public:
  explicit HandleTable(std::uint64_t generation) : last_(generation << 40) {}

  std::uint64_t next() { return ++last_; }
  /// id: of `next`, or of an earlier generation.
  void put(std::uint64_t id, std::shared_ptr<T> handle) {
    Shard& shard = shard_of(id);
    MutexLock lock(shard.m);
    shard.handles.emplace(id, std::move(handle));
  }
  Result<std::shared_ptr<T>> at(std::uint64_t id) {
    Shard& shard = shard_of(id);
    MutexLock lock(shard.m);
    const auto found = shard.handles.find(id);
    if (found == shard.handles.end()) return Status(Errc::bad_handle, "no such open handle");
    return found->second;
  }
  /// Null: there was none.
  std::shared_ptr<T> take(std::uint64_t id) {
    Shard& shard = shard_of(id);
    MutexLock lock(shard.m);
    const auto found = shard.handles.find(id);
    if (found == shard.handles.end()) return nullptr;
    std::shared_ptr<T> handle = std::move(found->second);
    shard.handles.erase(found);
    return handle;
  }

 private:
  struct alignas(64) Shard {
    Mutex m;
    std::unordered_map<std::uint64_t, std::shared_ptr<T>> handles SL_GUARDED_BY(m);
  };
  Shard& shard_of(std::uint64_t id) { return shards_[id % shards_.size()]; }

  std::atomic<std::uint64_t> last_;  // only ever raised
  std::array<Shard, 16> shards_;
};

}  // namespace starlane::client
