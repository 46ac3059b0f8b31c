#include "common/thread_pool.h"

#include <pthread.h>

#include <utility>

#include "common/trace.h"

namespace starlane {

void name_this_thread(const std::string& name) {
  ::pthread_setname_np(::pthread_self(), name.substr(0, 15).c_str());
}

ThreadPool::ThreadPool(Options options) : options_(std::move(options)) {
  SL_CHECK(options_.threads > 0 && options_.queue_limit > 0);
  for (std::size_t i = 0; i < options_.threads; ++i) threads_.emplace_back([this, i] { run(i); });
}

ThreadPool::~ThreadPool() {
  {
    MutexLock lock(m_);
    stopping_ = true;
    not_empty_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::submit(std::function<void()> work) {
  MutexLock lock(m_);
  while (queue_.size() >= options_.queue_limit) not_full_.wait(m_);
  queue_.push_back({std::move(work), current_trace()});
  not_empty_.notify_one();
}

Status ThreadPool::try_submit(std::function<void()> work) {
  MutexLock lock(m_);
  if (queue_.size() >= options_.queue_limit)
    return Status(Errc::busy, options_.name + " queue is full");
  queue_.push_back({std::move(work), current_trace()});
  not_empty_.notify_one();
  return {};
}

void ThreadPool::run(std::size_t number) {
  name_this_thread(options_.name + std::to_string(number));
  for (;;) {
    Work work;
    {
      MutexLock lock(m_);
      while (queue_.empty() && !stopping_) not_empty_.wait(m_);
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.pop_front();
      not_full_.notify_one();
    }
    const TraceScope scope(work.trace);
    work.run();
  }
}

}  // namespace starlane
