// Time as an edge that tests can drive: wall time for file attributes, boot time for leases and
// deadlines.
#pragma once
#include <chrono>
#include <cstdint>

namespace starlane {

using Nanoseconds = std::chrono::nanoseconds;
using Milliseconds = std::chrono::milliseconds;

/// Seconds and nanoseconds since 1970, as files carry it; seconds may be negative or beyond 2038.
struct WallTime {
  std::int64_t seconds = 0;
  std::uint32_t nanoseconds = 0;
  friend constexpr auto operator<=>(const WallTime&, const WallTime&) = default;
};

class Clock {
 public:
  virtual ~Clock() = default;
  virtual WallTime wall() const = 0;
  /// Since boot, counting suspended time (CLOCK_BOOTTIME): never goes back.
  virtual Nanoseconds boot() const = 0;
};

/// The machine's own; lives as long as the process.
const Clock& system_clock();

/// A point on the machine's boot clock after which the caller no longer waits.
class Deadline {
 public:
  static Deadline after(Nanoseconds duration) { return Deadline(system_clock().boot() + duration); }
  static Deadline never() { return Deadline(Nanoseconds::max()); }
  bool passed() const { return system_clock().boot() >= at_; }
  /// Zero when passed; Nanoseconds::max() when never.
  Nanoseconds left() const {
    if (at_ == Nanoseconds::max()) return at_;
    const Nanoseconds now = system_clock().boot();
    return now >= at_ ? Nanoseconds::zero() : at_ - now;
  }

 private:
  explicit Deadline(Nanoseconds at) : at_(at) {}
  Nanoseconds at_;
};

}  // namespace starlane
