#include "client/session/signals.h"

#include <algorithm>

namespace starlane::client {

void Signals::interrupt(std::uint64_t unique) {
  if (unique == 0) return;
  MutexLock lock(m_);
  recent_[next_] = unique;
  next_ = (next_ + 1) % recent_.size();
  changed_.notify_all();
}

void Signals::stop() {
  MutexLock lock(m_);
  stopped_ = true;
  changed_.notify_all();
}

Status Signals::state_of(std::uint64_t unique) const {
  if (stopped_) return Status(Errc::unavailable, "the client is stopping");
  if (unique != 0 && std::find(recent_.begin(), recent_.end(), unique) != recent_.end())
    return Status(Errc::interrupted, "interrupted by a signal");
  return {};
}

Status Signals::check(std::uint64_t unique) {
  MutexLock lock(m_);
  return state_of(unique);
}

Status Signals::sleep(std::uint64_t unique, Nanoseconds duration) {
  const Deadline until = Deadline::after(duration);
  MutexLock lock(m_);
  while (true) {
    SL_TRY(state_of(unique));
    if (until.passed()) return {};
    changed_.wait_for(m_, until.left());
  }
}

}  // namespace starlane::client
