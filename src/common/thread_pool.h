// A fixed number of threads behind a queue with a limit: how fan-out and background work run
// everywhere.
#pragma once
#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "common/mutex.h"
#include "common/status.h"

namespace starlane {

class ThreadPool {
 public:
  struct Options {
    std::string name;  // shown by ps and gdb, at most 15 characters
    std::size_t threads = 4;
    std::size_t queue_limit = 1024;
  };

  explicit ThreadPool(Options options);
  /// Runs what is queued, then joins.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// Queues `work`; blocks while the queue is full. Not from the pool's own threads when it may be
  /// full.
  void submit(std::function<void()> work) SL_EXCLUDES(m_);
  /// Queues `work`, or answers busy at once when the queue is full.
  Status try_submit(std::function<void()> work) SL_EXCLUDES(m_);

 private:
  void run(std::size_t number);

  const Options options_;
  Mutex m_;
  CondVar not_empty_;
  CondVar not_full_;
  struct Work {
    std::function<void()> run;
    std::uint64_t trace = 0;  // of who submitted it
  };
  std::deque<Work> queue_ SL_GUARDED_BY(m_);
  bool stopping_ SL_GUARDED_BY(m_) = false;
  std::vector<std::thread> threads_;
};

/// Names the calling thread for ps and gdb (cut to 15 characters).
void name_this_thread(const std::string& name);

}  // namespace starlane
