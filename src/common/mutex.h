// Mutex and CondVar with clang's thread-safety annotations (checked by the `clang` preset), and
// nothing else. Rule: never held over RPC, KV or disk. Lock order is said in the comment of the
// class that owns them.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define SL_ANNOTATE(x) __attribute__((x))
#else
#define SL_ANNOTATE(x)
#endif
#define SL_GUARDED_BY(m) SL_ANNOTATE(guarded_by(m))
#define SL_REQUIRES(...) SL_ANNOTATE(requires_capability(__VA_ARGS__))
#define SL_EXCLUDES(...) SL_ANNOTATE(locks_excluded(__VA_ARGS__))
#define SL_ACQUIRE(...) SL_ANNOTATE(acquire_capability(__VA_ARGS__))
#define SL_RELEASE(...) SL_ANNOTATE(release_capability(__VA_ARGS__))
#define SL_NO_THREAD_SAFETY SL_ANNOTATE(no_thread_safety_analysis)

namespace starlane {

class SL_ANNOTATE(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  void lock() SL_ACQUIRE() { m_.lock(); }
  void unlock() SL_RELEASE() { m_.unlock(); }
  bool try_lock() SL_ANNOTATE(try_acquire_capability(true)) { return m_.try_lock(); }

 private:
  friend class CondVar;
  std::mutex m_;
};

class SL_ANNOTATE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& m) SL_ACQUIRE(m) : m_(m) { m_.lock(); }
  ~MutexLock() SL_RELEASE() { m_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& m_;
};

/// Waits on a held Mutex. Wake-ups may be spurious: loop over the condition.
class CondVar {
 public:
  void wait(Mutex& m) SL_REQUIRES(m) {
    std::unique_lock lock(m.m_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }
  /// False when `duration` passed first.
  template <typename Rep, typename Period>
  bool wait_for(Mutex& m, std::chrono::duration<Rep, Period> duration) SL_REQUIRES(m) {
    std::unique_lock lock(m.m_, std::adopt_lock);
    // wait_until on a system clock is what TSan of g++ 12 understands.
    const auto until = std::chrono::system_clock::now() + duration;
    const bool woken = cv_.wait_until(lock, until) == std::cv_status::no_timeout;
    lock.release();
    return woken;
  }
  void notify_one() { cv_.notify_one(); }
  void notify_all() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace starlane
