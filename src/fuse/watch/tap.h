// Where others see each operation of a mount as it ends: an access log, a profile. While nobody
// listens it costs one relaxed load an operation. While somebody does, operations go through a
// bounded queue to one thread; what does not fit is dropped and counted, and nobody who serves
// waits for more than the lock of that queue. Any thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/access_entry.h"
#include "common/mutex.h"

namespace starlane::fuse {

class Tap {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    /// On the tap's thread, in the order in which operations ended, roughly.
    virtual void take(const client::AccessEntry& entry) = 0;
    /// Nothing more has come for now. False: it wants no more.
    virtual bool pause() { return true; }
  };

  Tap() = default;
  ~Tap();
  Tap(const Tap&) = delete;
  Tap& operator=(const Tap&) = delete;

  bool active() const { return active_.load(std::memory_order_relaxed); }
  void offer(client::AccessEntry entry) SL_EXCLUDES(m_);
  std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

  void add(std::shared_ptr<Listener> listener) SL_EXCLUDES(m_);
  /// What was offered before is heard by it first.
  void remove(const std::shared_ptr<Listener>& listener) SL_EXCLUDES(m_);

 private:
  static constexpr std::size_t kQueue = 16'384;
  using Listeners = std::vector<std::shared_ptr<Listener>>;

  void run() SL_EXCLUDES(m_);

  std::atomic<bool> active_{false};        // a hint; pairs with nothing
  std::atomic<std::uint64_t> dropped_{0};  // a figure

  Mutex m_;
  CondVar wake_, told_more_;
  std::vector<client::AccessEntry> queue_ SL_GUARDED_BY(m_);
  Listeners listeners_ SL_GUARDED_BY(m_);
  std::uint64_t offered_ SL_GUARDED_BY(m_) = 0, told_ SL_GUARDED_BY(m_) = 0;  // entries in all
  bool stopping_ SL_GUARDED_BY(m_) = false;
  std::thread thread_ SL_GUARDED_BY(m_);  // from the first listener on
};

}  // namespace starlane::fuse
