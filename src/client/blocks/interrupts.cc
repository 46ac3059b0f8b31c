#include "client/blocks/interrupts.h"

#include <algorithm>

namespace starlane::client {

Interrupts::Scope::Scope(Interrupts& of, std::uint64_t unique) : of_(of), unique_(unique) {
  if (unique_ == 0) return;
  MutexLock lock(of_.m_);
  Request& request = of_.requests_[unique_];
  ++request.scopes;
  if (std::ranges::find(of_.recent_, unique_) != of_.recent_.end()) request.interrupted = true;
}

Interrupts::Scope::~Scope() {
  if (unique_ == 0) return;
  MutexLock lock(of_.m_);
  const auto at = of_.requests_.find(unique_);
  if (--at->second.scopes == 0) of_.requests_.erase(at);
}

bool Interrupts::Scope::interrupted() const {
  MutexLock lock(of_.m_);
  return of_.interrupted(unique_);
}

Status Interrupts::Scope::sleep(Nanoseconds duration) const {
  const Deadline until = Deadline::after(duration);
  MutexLock lock(of_.m_);
  while (!of_.interrupted(unique_)) {
    const Nanoseconds left = until.left();
    if (left <= Nanoseconds::zero()) return {};
    of_.changed_.wait_for(of_.m_, left);
  }
  return Status(Errc::interrupted, "interrupted while waiting for a server");
}

void Interrupts::interrupt(std::uint64_t unique) {
  MutexLock lock(m_);
  recent_[next_recent_++ % recent_.size()] = unique;
  const auto at = requests_.find(unique);
  if (at == requests_.end()) return;
  at->second.interrupted = true;
  changed_.notify_all();
}

void Interrupts::stop() {
  MutexLock lock(m_);
  stopped_ = true;
  changed_.notify_all();
}

bool Interrupts::stopped() const {
  MutexLock lock(m_);
  return stopped_;
}

bool Interrupts::interrupted(std::uint64_t unique) const {
  if (stopped_) return true;
  if (unique == 0) return false;
  const auto at = requests_.find(unique);
  return at != requests_.end() && at->second.interrupted;
}

}  // namespace starlane::client
