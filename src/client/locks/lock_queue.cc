#include "client/locks/lock_queue.h"

#include <algorithm>
#include <system_error>

#include "common/thread_pool.h"

namespace starlane::client {
namespace {

constexpr Nanoseconds kAwait = std::chrono::seconds(2);  // of one call, which sleeps half of it
constexpr Nanoseconds kAfterFailure = Milliseconds(200);

Status given_up() { return {Errc::interrupted, "interrupted while waiting for a lock"}; }

}  // namespace

void LockQueue::add(Waiting waiting) {
  {
    MutexLock lock(m_);
    if (!stopping_ && waiting_.size() < kMaxWaiting && has_thread())
      return keep(next_++, std::move(waiting));
  }
  waiting.give_up();
  waiting.done(Status(Errc::no_locks, "too many requests of this mount wait for locks"));
}

bool LockQueue::has_thread() {
  if (thread_.joinable()) return true;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    return false;  // the system has no more
  }
  return true;
}

void LockQueue::keep(std::uint64_t number, Waiting waiting) {
  waiting_.emplace(number, std::move(waiting));
  changed_.notify_all();
}

void LockQueue::interrupt(std::uint64_t unique) {
  std::map<std::uint64_t, Waiting> found;
  {
    MutexLock lock(m_);
    const auto at = std::find_if(waiting_.begin(), waiting_.end(),
                                 [unique](const auto& one) { return one.second.unique == unique; });
    if (at == waiting_.end()) return;
    found.insert(waiting_.extract(at));
  }
  end(found.begin()->second);
}

void LockQueue::end(Waiting& waiting) {
  waiting.give_up();  // first, or a request that relies on the answer finds it still waiting
  waiting.done(given_up());
}

void LockQueue::stop() {
  std::thread thread;
  {
    MutexLock lock(m_);
    stopping_ = true;
    changed_.notify_all();
    thread = std::move(thread_);
  }
  if (thread.joinable()) thread.join();
  std::map<std::uint64_t, Waiting> left;
  {
    MutexLock lock(m_);
    left.swap(waiting_);
  }
  for (auto& [number, waiting] : left) waiting.done(given_up());
}

void LockQueue::run() {
  name_this_thread("sl-locks");
  while (true) {
    {
      MutexLock lock(m_);
      while (!stopping_ && waiting_.empty()) changed_.wait(m_);
      if (stopping_) return;
    }
    await_change();
    try_all();
  }
}

void LockQueue::await_change() {
  pb::SessionRequest request;
  Call call;
  call.session = sessions_.id();
  call.deadline = Deadline::after(kAwait);
  request.set_session(call.session.value);
  pb::Empty reply;
  if (sessions_.meta().await_locks(call, request, &reply).ok()) return;
  MutexLock lock(m_);
  if (!stopping_) changed_.wait_for(m_, kAfterFailure);
}

void LockQueue::try_all() {
  std::uint64_t after = 0;
  while (true) {
    std::map<std::uint64_t, Waiting> one;
    {
      MutexLock lock(m_);
      const auto at = waiting_.upper_bound(after);
      if (stopping_ || at == waiting_.end()) return;
      one.insert(waiting_.extract(at));
    }
    auto& [number, waiting] = *one.begin();
    after = number;
    const Status status = waiting.attempt();
    if (status.code() != Errc::would_block) {
      waiting.done(status);
    } else if (!sessions_.signals().check(waiting.unique).ok()) {
      end(waiting);  // signalled while it was tried
    } else {
      MutexLock lock(m_);
      keep(number, std::move(waiting));
    }
  }
}

}  // namespace starlane::client
