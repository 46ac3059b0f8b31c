// Runs small pieces of work later, in the order in which they fall due: how `loop` delays what it
// delivers. Any thread.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "common/clock.h"
#include "common/mutex.h"

namespace starlane::net {

class Courier {
 public:
  Courier();
  /// Drops what is not yet due.
  ~Courier();
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  /// `work` never blocks for long. Works with one due time run in the order of the calls.
  void at(Nanoseconds boot_time, std::function<void()> work) SL_EXCLUDES(m_);

 private:
  void run() SL_EXCLUDES(m_);

  Mutex m_;
  CondVar changed_;
  std::map<std::pair<Nanoseconds, std::uint64_t>, std::function<void()>> due_ SL_GUARDED_BY(m_);
  std::uint64_t next_ SL_GUARDED_BY(m_) = 0;
  bool stopping_ SL_GUARDED_BY(m_) = false;
  std::thread thread_;
};

}  // namespace starlane::net
