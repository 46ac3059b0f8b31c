// Who was told to look a name up again: the open that follows is served whatever happens meanwhile,
// for the kernel gives an application ESTALE when it gets it twice. Any thread.
#pragma once
#include <cstdint>
#include <unordered_map>

#include "common/clock.h"
#include "common/mutex.h"

namespace starlane::client {

class Relooks {
 public:
  void told(std::uint32_t pid, Nanoseconds now) SL_EXCLUDES(m_) {
    MutexLock lock(m_);
    if (told_.size() >= kLimit) told_.clear();
    told_[pid] = now;
  }
  /// True once after `told`, for a moment.
  bool take(std::uint32_t pid, Nanoseconds now) SL_EXCLUDES(m_) {
    MutexLock lock(m_);
    const auto at = told_.find(pid);
    if (at == told_.end()) return false;
    const bool recent = now - at->second < std::chrono::seconds(5);
    told_.erase(at);
    return recent;
  }
  /// Its look ended with no file, or a new one: the open after that is one like any other.
  void forget(std::uint32_t pid) SL_EXCLUDES(m_) {
    MutexLock lock(m_);
    told_.erase(pid);
  }

 private:
  static constexpr std::size_t kLimit = 4096;
  Mutex m_;
  std::unordered_map<std::uint32_t, Nanoseconds> told_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::client
