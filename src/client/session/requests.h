// Numbers of non-idempotent calls, under which the server answers a repeated call once. Made from
// the kernel's number of the request where there is one, so that a request the kernel sends again
// keeps its number. Any thread.
#pragma once
#include <cstdint>
#include <set>

#include "common/clock.h"
#include "common/mutex.h"

namespace starlane::client {

class Requests {
 public:
  /// generation: of the process in its session. Numbers of its own never meet an earlier one's; and
  /// nothing is forgotten for so long that what the kernel sends again is known by then.
  void start(std::uint64_t generation) SL_EXCLUDES(m_) {
    MutexLock lock(m_);
    own_ = generation << 40;
    if (generation > 1) keep_until_ = system_clock().boot() + std::chrono::seconds(60);
  }

  /// Unanswered as long as it lives.
  class Number {
   public:
    Number(Requests& requests, std::uint64_t value) : requests_(requests), value_(value) {}
    Number(const Number&) = delete;
    Number& operator=(const Number&) = delete;
    ~Number() { requests_.end(value_); }
    std::uint64_t value() const { return value_; }

   private:
    Requests& requests_;
    const std::uint64_t value_;
  };

  /// unique: Caller.unique; 0: none, a number of our own. step: which call of several that one
  /// request makes.
  Number begin(std::uint64_t unique, std::uint64_t step = 0) SL_EXCLUDES(m_) {
    MutexLock lock(m_);
    const std::uint64_t value = unique == 0 ? kOwn | ++own_ : unique * kSteps + step;
    open_.insert(value);
    if (value > newest_) newest_ = value;
    return Number(*this, value);
  }

  /// Outcomes below may be forgotten. One call late, for threads that have read a request and not
  /// begun it.
  std::uint64_t oldest() SL_EXCLUDES(m_) {
    MutexLock lock(m_);
    if (keep_until_ != Nanoseconds(0) && system_clock().boot() < keep_until_) return 0;
    const std::uint64_t answer = oldest_before_;
    oldest_before_ = open_.empty() ? newest_ : *open_.begin();
    return answer < oldest_before_ ? answer : oldest_before_;
  }

 private:
  static constexpr std::uint64_t kSteps = 4;
  static constexpr std::uint64_t kOwn = std::uint64_t{1} << 62;

  void end(std::uint64_t value) SL_EXCLUDES(m_) {
    MutexLock lock(m_);
    open_.erase(open_.find(value));
  }

  Mutex m_;
  std::uint64_t own_ SL_GUARDED_BY(m_) = 0;
  std::uint64_t newest_ SL_GUARDED_BY(m_) = 0;
  std::uint64_t oldest_before_ SL_GUARDED_BY(m_) = 0;
  Nanoseconds keep_until_ SL_GUARDED_BY(m_){0};  // boot time
  std::multiset<std::uint64_t> open_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::client
