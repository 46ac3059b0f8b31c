// Requests that wait for a lock: one thread for all of a mount asks again for each, in the order in
// which they came, when the server says that something changed, and every second anyway (another
// server may have unlocked it). No request holds a thread of its own. Any thread. Lock: m_, never
// held over a call, an attempt or an answer.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <thread>

#include "client/session/sessions.h"
#include "client/vfs.h"
#include "common/mutex.h"

namespace starlane::client {

class LockQueue {
 public:
  static constexpr std::size_t kMaxWaiting = 16'384;

  struct Waiting {
    std::uint64_t unique = 0;         // of the request; as Signals
    std::function<Status()> attempt;  // would_block: not yet
    std::function<void()> give_up;    // tells the server that nobody waits any more; short
    Vfs::LockDone done;
  };

  /// sessions outlives it.
  explicit LockQueue(Sessions& sessions) : sessions_(sessions) {}
  ~LockQueue() { stop(); }
  LockQueue(const LockQueue&) = delete;
  LockQueue& operator=(const LockQueue&) = delete;

  /// After an attempt that answered would_block.
  void add(Waiting waiting) SL_EXCLUDES(m_);
  /// A request that waits here is answered `interrupted`; one that is being tried is not touched:
  /// its attempt ends by the same signal.
  void interrupt(std::uint64_t unique) SL_EXCLUDES(m_);
  /// All are answered `interrupted`, those that come later too.
  void stop() SL_EXCLUDES(m_);

 private:
  bool has_thread() SL_REQUIRES(m_);
  void keep(std::uint64_t number, Waiting waiting) SL_REQUIRES(m_);
  static void end(Waiting& waiting);
  void run() SL_EXCLUDES(m_);
  void await_change() SL_EXCLUDES(m_);
  void try_all() SL_EXCLUDES(m_);

  Sessions& sessions_;
  Mutex m_;
  CondVar changed_;
  // By number, which is their order; the one that is being tried is not among them.
  std::map<std::uint64_t, Waiting> waiting_ SL_GUARDED_BY(m_);
  std::uint64_t next_ SL_GUARDED_BY(m_) = 1;
  bool stopping_ SL_GUARDED_BY(m_) = false;
  std::thread thread_ SL_GUARDED_BY(m_);  // made for the first that waits
};

}  // namespace starlane::client
