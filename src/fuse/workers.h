// The threads that read /dev/fuse. There is always one waiting for the next request while the limit
// allows: a request that blocks starves no other, and INTERRUPT is read even when all threads are
// blocked (what cannot be served then waits in a bounded queue). Threads beyond a few idle ones end
// by themselves. `start` and `join` belong to one thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <optional>
#include <thread>
#include <vector>

#include "common/bytes.h"
#include "common/mutex.h"
#include "fuse/protocol.h"
#include "metrics/meter.h"

namespace starlane::fuse {

class Workers {
 public:
  struct Options {
    int device = -1;
    std::size_t max_request_bytes = 0;  // header, arguments and data of the largest
    std::size_t max_threads = 512;
    std::size_t keep_idle = 4;
    std::size_t queue_requests = 16384;  // beyond max_threads; the rest waits in the kernel
    std::uint64_t queue_bytes = 64_MiB;
    metrics::Histogram* queued = nullptr;  // how long requests waited in the queue; outlives it
    // A request that is being copied into memory not there yet fails when this process is killed;
    // with another process to go on, the buffers of so many threads are there from the start.
    std::size_t populated_threads = 0;
  };
  /// serve: one request, answered when it returns. urgent: it never blocks, so the last reader
  /// serves it itself.
  struct Handlers {
    std::function<void(ByteSpan)> serve;
    std::function<bool(ByteSpan)> urgent;
    std::function<void(ByteSpan)> queued;  // it will be served later; must not block
  };

  Workers(const Options& options, Handlers handlers);
  /// Joins: the connection must have ended, or `end` been called.
  ~Workers();

  void start();
  /// Blocks until the connection ends, or `timeout` passes (false).
  bool wait_ended(std::chrono::milliseconds timeout) SL_EXCLUDES(m_);
  /// Makes the threads end although the connection has not; they finish what they serve.
  void end() SL_EXCLUDES(m_);
  bool all_gone() SL_EXCLUDES(m_);
  void join() SL_EXCLUDES(m_);

  /// Takes a request out that nobody serves yet; its header, or nothing.
  std::optional<InHeader> take_queued(std::uint64_t unique) SL_EXCLUDES(m_);

  std::size_t threads() SL_EXCLUDES(m_);
  std::size_t most_threads() SL_EXCLUDES(m_);

 private:
  class Buffer;
  using ThreadList = std::list<std::thread>;

  void spawn() SL_REQUIRES(m_);
  void run(ThreadList::iterator self);
  void loop(Buffer& buffer) SL_REQUIRES(m_);
  bool serve_queued() SL_REQUIRES(m_);
  bool leave_to_others(ByteSpan request) SL_REQUIRES(m_);
  ByteSpan next_request(Buffer& buffer) SL_REQUIRES(m_);
  void wake_readers() SL_REQUIRES(m_);

  const Options options_;
  const Handlers handlers_;
  Mutex m_;
  CondVar changed_;  // ended, or a thread gone
  ThreadList running_ SL_GUARDED_BY(m_);
  ThreadList finished_ SL_GUARDED_BY(m_);
  struct Waiting {
    std::vector<std::byte> request;
    Nanoseconds since{0};
  };
  std::deque<Waiting> queue_ SL_GUARDED_BY(m_);
  std::uint64_t queued_bytes_ SL_GUARDED_BY(m_) = 0;
  std::size_t readers_ SL_GUARDED_BY(m_) = 0;  // in read(), or on the way to it
  std::size_t most_ SL_GUARDED_BY(m_) = 0;
  bool ended_ SL_GUARDED_BY(m_) = false;
};

}  // namespace starlane::fuse
