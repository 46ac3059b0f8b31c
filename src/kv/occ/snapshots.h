// The views that transactions still read, by version: tells which recent writes nobody can ask
// about any more. Any thread. Its lock is innermost and short.
#pragma once
#include <memory>
#include <set>

#include "common/mutex.h"
#include "kv/engine.h"
#include "kv/occ/storage.h"

namespace starlane::kv::occ {

/// The state after the commit with version `at`.
struct Snapshot {
  Version at;
  std::shared_ptr<const View> view;
};
using SnapshotPtr = std::shared_ptr<const Snapshot>;

class Snapshots {
 public:
  /// Counted until its last owner lets go (which must not happen under a lock: it may call into the
  /// storage).
  SnapshotPtr add(Version at, std::shared_ptr<const View> view) {
    {
      MutexLock lock(live_->m);
      live_->versions.insert(at);
    }
    return SnapshotPtr(new Snapshot{at, std::move(view)}, [live = live_](const Snapshot* snapshot) {
      {
        MutexLock lock(live->m);
        live->versions.erase(live->versions.find(snapshot->at));
      }
      delete snapshot;
    });
  }
  /// `otherwise` when there is none.
  Version oldest(Version otherwise) const {
    MutexLock lock(live_->m);
    return live_->versions.empty() ? otherwise : *live_->versions.begin();
  }

 private:
  struct Live {
    Mutex m;
    std::multiset<Version> versions SL_GUARDED_BY(m);
  };
  std::shared_ptr<Live> live_ = std::make_shared<Live>();
};

}  // namespace starlane::kv::occ
