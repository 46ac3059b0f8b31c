#include "meta/members/lease_watch.h"

#include <algorithm>

namespace starlane::meta {

bool LeaseWatch::silent(SessionId session, std::uint64_t heard, Nanoseconds now,
                        Nanoseconds lease) {
  MutexLock lock(m_);
  const auto [at, added] = seen_.try_emplace(session, Seen{heard, now});
  if (!added && at->second.heard != heard) at->second = {heard, now};
  return now - at->second.since > lease;
}

void LeaseWatch::keep_only(const std::vector<SessionId>& living) {
  MutexLock lock(m_);
  std::erase_if(seen_, [&](const auto& one) {
    return !std::binary_search(living.begin(), living.end(), one.first);
  });
}

}  // namespace starlane::meta
