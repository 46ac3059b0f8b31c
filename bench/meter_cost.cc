// What it costs to count an operation: a counter, a histogram, and a timed section (two readings of
// the clock), alone and with all threads on the same meter.
#include <cstdio>
#include <thread>
#include <vector>

#include "metrics/meter.h"

namespace {

using namespace starlane;

template <typename Operation>
double nanoseconds_each(std::size_t threads, Operation operation) {
  constexpr std::uint64_t kTimes = 4'000'000;
  const Nanoseconds began = system_clock().boot();
  std::vector<std::thread> running;
  for (std::size_t t = 0; t < threads; ++t)
    running.emplace_back([&] {
      for (std::uint64_t i = 0; i < kTimes; ++i) operation(i);
    });
  for (std::thread& thread : running) thread.join();
  return static_cast<double>((system_clock().boot() - began).count()) / kTimes;
}

template <typename Operation>
void row(const char* name, Operation operation) {
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  std::printf("%-28s %8.1f ns %8.1f ns on %zu threads\n", name, nanoseconds_each(1, operation),
              nanoseconds_each(cores, operation), cores);
}

}  // namespace

int main() {
  static metrics::Counter counter;
  static metrics::Histogram histogram;
  row("Counter::add", [](std::uint64_t) { counter.add(); });
  row("Histogram::record", [](std::uint64_t i) { histogram.record(i * 977); });
  row("reading the clock", [](std::uint64_t) { (void)system_clock().boot(); });
  row("Timed", [](std::uint64_t) { const metrics::Timed timed(histogram); });
  return counter.value() == 0;
}
