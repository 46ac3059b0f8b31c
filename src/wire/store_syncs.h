// Brings what stores have accepted to their devices before the metadata that names it becomes
// durable: all targets of the map at once, those of this process in the caller's thread. One that
// does not answer in time is left out, and not waited for again until it has answered: a store that
// is away must not hold up everybody's fsync. One sync at a time.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/mutex.h"
#include "common/thread_pool.h"
#include "proto/block_service.h"
#include "proto/meta.pb.h"

namespace starlane::wire {

class StoreSyncs {
 public:
  struct Options {
    Milliseconds patience{2'000};       // of one sync, for all that are elsewhere
    Milliseconds call_timeout{10'000};  // after which a store is asked anew
    std::size_t threads = 8;            // stores elsewhere that are asked at once
  };
  struct Place {
    std::shared_ptr<BlockService> service;  // null: it cannot be reached
    bool here = false;                      // in this process
  };
  using Find = std::function<Place(const std::string& endpoint)>;

  StoreSyncs(Find find, const Options& options);
  /// Waits for calls under way.
  ~StoreSyncs() = default;

  struct Outcome {
    Status failure;  // of a store that answered that it cannot: what it accepted may be lost
    std::vector<TargetId> left_out;  // away, or too slow
  };
  Outcome sync(const pb::ClusterMap& map) SL_EXCLUDES(m_);

 private:
  bool start(TargetId target, std::shared_ptr<BlockService> service) SL_EXCLUDES(m_);
  void wait_for(const std::vector<TargetId>& asked) SL_EXCLUDES(m_);
  static void keep(TargetId target, const Status& status, Outcome& outcome);

  const Find find_;
  const Options options_;
  Mutex m_;
  CondVar answered_;
  struct Asked {
    bool running = false;
    Status status;
  };
  std::map<TargetId, Asked> asked_ SL_GUARDED_BY(m_);
  std::unique_ptr<ThreadPool> pool_;  // from the first target that is elsewhere on; last: it uses
                                      // all of the above
};

}  // namespace starlane::wire
