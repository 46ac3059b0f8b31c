#include "capi/calls.h"

#include <sys/types.h>
#include <unistd.h>

#include <vector>

namespace starlane::capi {

Calls::Calls(client::Vfs& vfs, Nanoseconds patience) : vfs_(vfs), patience_(patience) {
  if (patience_ > Nanoseconds::zero()) watcher_ = std::thread([this] { watch(); });
}

Calls::~Calls() {
  {
    MutexLock lock(m_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (watcher_.joinable()) watcher_.join();
}

Calls::Scope::Scope(Calls& of) : of_(of) {
  caller_.uid = ::geteuid();
  caller_.gid = ::getegid();
  caller_.pid = static_cast<std::uint32_t>(::gettid());  // looks again after a stale answer
  MutexLock lock(of_.m_);
  caller_.unique = ++of_.last_;
  Call& call = of_.under_way_[caller_.unique];
  if (of_.patience_ == Nanoseconds::zero()) return;
  call.deadline = Deadline::after(of_.patience_);
  if (of_.under_way_.size() == 1) of_.changed_.notify_all();
}

Calls::Scope::~Scope() {
  MutexLock lock(of_.m_);
  of_.under_way_.erase(caller_.unique);
}

Status Calls::Scope::told(Status status) const {
  if (status.code() != Errc::interrupted) return status;
  MutexLock lock(of_.m_);
  if (!of_.under_way_[caller_.unique].late) return {Errc::interrupted, "the call was interrupted"};
  return {Errc::timeout, "a server of the site has been away for longer than patience_ms"};
}

Status Calls::Scope::sleep(Nanoseconds duration) const {
  const Deadline until = Deadline::after(duration);
  MutexLock lock(of_.m_);
  while (!until.passed()) {
    if (of_.under_way_[caller_.unique].interrupted)
      return {Errc::interrupted, "the call was interrupted"};
    of_.changed_.wait_for(of_.m_, until.left());
  }
  return {};
}

void Calls::interrupt_all() {
  std::vector<std::uint64_t> all;
  {
    MutexLock lock(m_);
    for (const auto& [unique, call] : under_way_) all.push_back(unique);
  }
  for (const std::uint64_t unique : all) interrupt(unique);
}

void Calls::interrupt(std::uint64_t unique) {
  {
    MutexLock lock(m_);
    const auto at = under_way_.find(unique);
    if (at == under_way_.end()) return;
    at->second.interrupted = true;
    changed_.notify_all();
  }
  vfs_.interrupt(unique);
}

// All have the same patience: the oldest is the next to be late.
Nanoseconds Calls::end_late() {
  for (auto& [unique, call] : under_way_) {
    if (call.late) continue;
    if (!call.deadline.passed()) return call.deadline.left();
    call.late = true;
    vfs_.interrupt(unique);  // takes locks of its own only, and never calls back
  }
  return Nanoseconds::max();
}

void Calls::watch() {
  name_this_thread("sl-patience");
  MutexLock lock(m_);
  while (!stopping_) {
    const Nanoseconds next = end_late();
    if (next == Nanoseconds::max())
      changed_.wait(m_);
    else
      changed_.wait_for(m_, next);
  }
}

}  // namespace starlane::capi
