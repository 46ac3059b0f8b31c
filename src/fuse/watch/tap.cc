#include "fuse/watch/tap.h"

#include <algorithm>

#include "common/thread_pool.h"

namespace starlane::fuse {

Tap::~Tap() {
  std::thread thread;
  {
    MutexLock lock(m_);
    stopping_ = true;
    wake_.notify_all();
    thread.swap(thread_);
  }
  if (thread.joinable()) thread.join();
}

void Tap::offer(client::AccessEntry entry) {
  MutexLock lock(m_);
  if (queue_.size() == kQueue) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  queue_.push_back(std::move(entry));
  ++offered_;
  if (queue_.size() == 1) wake_.notify_one();
}

void Tap::add(std::shared_ptr<Listener> listener) {
  MutexLock lock(m_);
  listeners_.push_back(std::move(listener));
  queue_.reserve(kQueue);
  if (!thread_.joinable() && !stopping_) thread_ = std::thread([this] { run(); });
  active_.store(true, std::memory_order_relaxed);
}

void Tap::remove(const std::shared_ptr<Listener>& listener) {
  MutexLock lock(m_);
  for (const std::uint64_t until = offered_; told_ < until && !stopping_;) told_more_.wait(m_);
  std::erase(listeners_, listener);
  active_.store(!listeners_.empty(), std::memory_order_relaxed);
}

void Tap::run() {
  name_this_thread("fuse-tap");
  std::vector<client::AccessEntry> taken;
  taken.reserve(kQueue);
  MutexLock lock(m_);
  for (;;) {
    while (queue_.empty() && !stopping_) wake_.wait(m_);
    if (queue_.empty()) return;
    taken.swap(queue_);
    const Listeners listeners = listeners_;
    m_.unlock();
    Listeners tired;
    for (const auto& listener : listeners) {
      for (const client::AccessEntry& entry : taken) listener->take(entry);
      if (!listener->pause()) tired.push_back(listener);
    }
    const std::size_t count = taken.size();
    taken.clear();
    m_.lock();
    told_ += count;
    told_more_.notify_all();
    for (const auto& listener : tired) std::erase(listeners_, listener);
    active_.store(!listeners_.empty(), std::memory_order_relaxed);
  }
}

}  // namespace starlane::fuse
