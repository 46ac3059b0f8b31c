#include "net/loop/courier.h"

#include <algorithm>

namespace starlane::net {

Courier::Courier() : thread_([this] { run(); }) {}

Courier::~Courier() {
  {
    MutexLock lock(m_);
    stopping_ = true;
    changed_.notify_one();
  }
  thread_.join();
}

void Courier::at(Nanoseconds boot_time, std::function<void()> work) {
  MutexLock lock(m_);
  due_.emplace(std::pair(boot_time, next_++), std::move(work));
  changed_.notify_one();
}

void Courier::run() {
  m_.lock();
  while (!stopping_) {
    const Nanoseconds now = system_clock().boot();
    if (due_.empty() || due_.begin()->first.first > now) {
      const Nanoseconds wait =
          due_.empty() ? std::chrono::hours(1) : due_.begin()->first.first - now;
      changed_.wait_for(m_, wait);
      continue;
    }
    const auto work = std::move(due_.begin()->second);
    due_.erase(due_.begin());
    m_.unlock();
    work();
    m_.lock();
  }
  m_.unlock();
}

}  // namespace starlane::net
