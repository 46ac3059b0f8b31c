#include "meta/members/lease_watch.h"

#include <algorithm>

namespace starlane::meta {

void LeaseWatch::ends_with(SessionId session, const ProcessId& process) {
  MutexLock lock(m_);
  processes_[session] = process;
}

bool LeaseWatch::silent(SessionId session, std::uint64_t heard, Nanoseconds now,
                        Nanoseconds lease) {
  MutexLock lock(m_);
  const auto [at, added] = seen_.try_emplace(session, Seen{heard, now});
  if (!added && at->second.heard != heard) at->second = {heard, now};
  if (now - at->second.since > lease) return true;
  const auto process = processes_.find(session);
  return process != processes_.end() && is_over(process->second);
}

void LeaseWatch::keep_only(const std::vector<SessionId>& living) {
  MutexLock lock(m_);
  const auto ended = [&](const auto& one) {
    return !std::binary_search(living.begin(), living.end(), one.first);
  };
  std::erase_if(seen_, ended);
  std::erase_if(processes_, ended);
}

}  // namespace starlane::meta
