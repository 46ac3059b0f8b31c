// Figures that hot paths raise: a relaxed atomic addition on a cache line that few threads share;
// no lock, no look-up, no allocation. Meters know no names: who owns them names them when they are
// read. Any thread.
#pragma once
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "common/clock.h"

namespace starlane::metrics {

inline constexpr std::size_t kStripes = 4;

/// Which stripe the calling thread raises: threads are dealt out in turn.
inline std::size_t this_stripe() {
  static std::atomic<std::uint32_t> next{0};  // pairs with nothing: any spread will do
  thread_local constinit std::uint32_t mine = 0;
  if (mine == 0) mine = next.fetch_add(1, std::memory_order_relaxed) % kStripes + 1;
  return mine - 1;
}

class Counter {
 public:
  void add(std::uint64_t amount = 1) {
    cells_[this_stripe()].value.fetch_add(amount, std::memory_order_relaxed);
  }
  std::uint64_t value() const {
    std::uint64_t sum = 0;
    for (const Cell& cell : cells_) sum += cell.value.load(std::memory_order_relaxed);
    return sum;
  }

 private:
  struct alignas(64) Cell {
    std::atomic<std::uint64_t> value{0};  // a figure; pairs with nothing
  };
  std::array<Cell, kStripes> cells_;
};

/// Buckets of a histogram: two an octave, so that a quantile is right to a third of its value. The
/// upper bounds are included: 1, 2, 3, 4, 6, 8, 12, …; the last bucket takes everything beyond.
inline constexpr std::size_t kBuckets = 78;

constexpr std::size_t bucket_of(std::uint64_t value) {
  if (value <= 1) return 0;
  const std::uint64_t below = value - 1;
  const auto octave = static_cast<std::size_t>(std::bit_width(below)) - 1;
  const std::size_t half = octave == 0 ? 0 : below >> (octave - 1) & 1;
  const std::size_t bucket = octave == 0 ? 1 : 2 * octave + half;
  return bucket < kBuckets ? bucket : kBuckets - 1;
}
/// The greatest value of a bucket but the last.
constexpr std::uint64_t bound_of(std::size_t bucket) {
  if (bucket < 2) return bucket + 1;
  const std::size_t octave = bucket / 2;
  return bucket % 2 == 0 ? 3ULL << (octave - 1) : 2ULL << octave;
}

/// Values as they were counted at one moment (or nearly: the parts are read one by one).
struct Counted {
  std::array<std::uint64_t, kBuckets> buckets{};
  std::uint64_t sum = 0;

  std::uint64_t count() const {
    std::uint64_t all = 0;
    for (const std::uint64_t n : buckets) all += n;
    return all;
  }
  /// The bound of the bucket that holds the quantile; 0 when nothing was counted.
  std::uint64_t quantile(double share) const {
    const double wanted = share * static_cast<double>(count());
    double seen = 0;
    for (std::size_t i = 0; i < kBuckets; ++i) {
      seen += static_cast<double>(buckets[i]);
      if (buckets[i] != 0 && seen >= wanted) return bound_of(i);
    }
    return 0;
  }
};

/// How often values of each size came: durations in nanoseconds, or plain numbers.
class Histogram {
 public:
  void record(std::uint64_t value) {
    Stripe& stripe = stripes_[this_stripe()];
    stripe.buckets[bucket_of(value)].fetch_add(1, std::memory_order_relaxed);
    stripe.sum.fetch_add(value, std::memory_order_relaxed);
  }
  void record(Nanoseconds duration) {
    record(duration.count() > 0 ? static_cast<std::uint64_t>(duration.count()) : 0);
  }
  Counted counted() const {
    Counted all;
    for (const Stripe& stripe : stripes_) {
      for (std::size_t i = 0; i < kBuckets; ++i)
        all.buckets[i] += stripe.buckets[i].load(std::memory_order_relaxed);
      all.sum += stripe.sum.load(std::memory_order_relaxed);
    }
    return all;
  }

 private:
  struct alignas(64) Stripe {
    std::array<std::atomic<std::uint64_t>, kBuckets> buckets{};  // figures; pair with nothing
    std::atomic<std::uint64_t> sum{0};
  };
  std::array<Stripe, kStripes> stripes_;
};

/// Records the time from its making to its end.
class Timed {
 public:
  explicit Timed(Histogram& into) : into_(into), began_(system_clock().boot()) {}
  ~Timed() { into_.record(system_clock().boot() - began_); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  Histogram& into_;
  const Nanoseconds began_;
};

}  // namespace starlane::metrics
