// Whose volumes' last free bytes are set aside for sessions, and who asked in vain: the others hear
// of it with their next heartbeat. Memory of this process only: what it forgets is asked again. Any
// thread.
#pragma once
#include <cstdint>
#include <unordered_map>

#include "common/ids.h"
#include "common/mutex.h"

namespace starlane::meta {

class EscrowCalls {
 public:
  void call(BranchId branch, SessionId by, std::uint64_t now_ns) SL_EXCLUDES(m_) {
    MutexLock lock(m_);
    if (calls_.size() >= kBranches && !calls_.contains(branch)) calls_.erase(calls_.begin());
    calls_[branch] = {by, now_ns};
  }
  /// Somebody else asked a moment ago.
  bool heard_by(BranchId branch, SessionId session, std::uint64_t now_ns) const SL_EXCLUDES(m_) {
    MutexLock lock(m_);
    const auto at = calls_.find(branch);
    return at != calls_.end() && at->second.by != session &&
           now_ns < at->second.at_ns + kRemembered;
  }

 private:
  static constexpr std::size_t kBranches = 1'024;
  static constexpr std::uint64_t kRemembered = 10'000'000'000;  // two heartbeats and more
  struct Asked {
    SessionId by;
    std::uint64_t at_ns = 0;
  };
  mutable Mutex m_;
  std::unordered_map<BranchId, Asked> calls_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::meta
