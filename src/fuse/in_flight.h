// Which requests are being served, so that an INTERRUPT finds its request. The word is passed on
// until the request ends, since it may come before the Vfs has begun to wait; and only when the
// request's thread should not wait on: a signal that it catches would show as EINTR in calls that
// have none on a local file system. Any thread.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "common/clock.h"
#include "common/mutex.h"

namespace starlane::fuse {

class InFlight {
 public:
  /// interrupt: tells the Vfs; called without a lock, from `interrupt` and from a thread of this
  /// class.
  explicit InFlight(std::function<void(std::uint64_t)> interrupt);
  ~InFlight();

  /// thread: the application's; what ends it ends the request, and so does a signal that it catches
  /// when the request has lasted for 2 s, as a server that is away makes it. 0: any signal does.
  void begin(std::uint64_t unique, std::uint32_t thread);
  void end(std::uint64_t unique);
  /// False: it is not known (yet, or any more).
  bool interrupt(std::uint64_t unique) SL_EXCLUDES(m_);
  /// Everything that is served now, and what begins later: the mount is going away.
  void interrupt_all() SL_EXCLUDES(m_);
  std::size_t size();

 private:
  struct Served {
    std::uint32_t thread = 0;
    Nanoseconds began{0};
  };
  struct Shard {
    Mutex m;
    std::unordered_map<std::uint64_t, Served> served SL_GUARDED_BY(m);  // by unique
  };
  static constexpr std::size_t kShards = 16;

  Shard& shard_of(std::uint64_t unique) {
    return shards_[(unique >> 1) % kShards];
  }  // the kernel counts by two
  std::optional<Served> find(std::uint64_t unique);
  static bool gives_up(const Served& served);
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
