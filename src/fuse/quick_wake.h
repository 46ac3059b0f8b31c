// A request wakes a thread of ours and the answer wakes its application: on another processor,
// which sleeps when both wait for each other. To wake it costs more than most requests do. While
// they come fast this asks the kernel (PM QoS, /dev/cpu_dma_latency) not to let processors sleep
// deeply; the wish ends with the process. Any thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "common/clock.h"
#include "common/mutex.h"
#include "common/status.h"
#include "common/unique_fd.h"

namespace starlane::fuse {

/// What to ask for on this machine: how long waking a processor may take. On hardware that is its
/// lightest sleep, which saves most of the power; in a virtual machine, where every sleep is the
/// host's, it is none, for a few processors. unsupported, with the reason: nothing is to be gained.
Result<std::int32_t> wanted_wake_latency_us(const std::filesystem::path& sys = "/sys");

class QuickWake {
 public:
  struct Options {
    std::int32_t latency_us = 0;
    std::string device = "/dev/cpu_dma_latency";
    std::uint64_t burst = 64;  // so many requests
    Milliseconds within{100};  // in such a time: the wish is uttered
    Milliseconds quiet{200};   // fewer in this time: it is taken back
  };
  /// requests: counts up; outlives this. Errors: what open(2) says of the device.
  static Result<std::unique_ptr<QuickWake>> start(const Options& options,
                                                  const std::atomic<std::uint64_t>& requests);
  ~QuickWake();
  QuickWake(const QuickWake&) = delete;
  QuickWake& operator=(const QuickWake&) = delete;

  /// The request of this number is served now.
  void note(std::uint64_t number) {
    if (number % options_.burst == 0 && !awake_.load(std::memory_order_relaxed)) consider();
  }
  bool awake() const { return awake_.load(std::memory_order_relaxed); }

 private:
  QuickWake(const Options& options, UniqueFd device, const std::atomic<std::uint64_t>& requests);

  void consider() SL_EXCLUDES(m_);
  void watch() SL_EXCLUDES(m_);
  void wish(std::int32_t latency_us) const;

  const Options options_;
  const UniqueFd device_;
  const std::atomic<std::uint64_t>& requests_;
  std::atomic<bool> awake_{false};  // changed under m_; a hint elsewhere
  Mutex m_;
  CondVar changed_;
  Nanoseconds last_ SL_GUARDED_BY(m_){0};  // when the last burst ended
  bool ended_ SL_GUARDED_BY(m_) = false;
  std::thread watcher_;
};

}  // namespace starlane::fuse
