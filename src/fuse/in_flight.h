// Which requests are being served, so that an INTERRUPT finds its request. The word is passed on
// until the request ends, since it may come before the Vfs has begun to wait. Any thread.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <thread>
#include <unordered_set>
#include <vector>

#include "common/mutex.h"

namespace starlane::fuse {

class InFlight {
 public:
  /// interrupt: tells the Vfs; called without a lock, from `interrupt` and from a thread of this
  /// class.
  explicit InFlight(std::function<void(std::uint64_t)> interrupt);
  ~InFlight();

  void begin(std::uint64_t unique);
  void end(std::uint64_t unique);
  /// False: it is not known (yet, or any more).
  bool interrupt(std::uint64_t unique) SL_EXCLUDES(m_);
  /// Everything that is served now, and what begins later: the mount is going away.
  void interrupt_all() SL_EXCLUDES(m_);
  std::size_t size();

 private:
  struct Shard {
    Mutex m;
    std::unordered_set<std::uint64_t> uniques SL_GUARDED_BY(m);
  };
  static constexpr std::size_t kShards = 16;

  Shard& shard_of(std::uint64_t unique) {
    return shards_[(unique >> 1) % kShards];
  }  // the kernel counts by two
  bool known(std::uint64_t unique);
  void repeat() SL_EXCLUDES(m_);
  std::vector<std::uint64_t> still_interrupted() SL_REQUIRES(m_);

  const std::function<void(std::uint64_t)> interrupt_;
  std::array<Shard, kShards> shards_;
  Mutex m_;  // before a shard's
  CondVar wake_;
  std::unordered_set<std::uint64_t> interrupted_ SL_GUARDED_BY(m_);
  bool all_ SL_GUARDED_BY(m_) = false;
  bool stopping_ SL_GUARDED_BY(m_) = false;
  std::thread repeater_;
};

}  // namespace starlane::fuse
