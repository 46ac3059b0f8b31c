// A clock for tests: both times stand still until `advance`.
#pragma once
#include <atomic>

#include "common/clock.h"

namespace starlane {

class ManualClock final : public Clock {
 public:
  WallTime wall() const override {
    const std::int64_t ns = now_.load();  // pairs with advance()
    return {1'700'000'000 + ns / 1'000'000'000, static_cast<std::uint32_t>(ns % 1'000'000'000)};
  }
  Nanoseconds boot() const override { return Nanoseconds(now_.load()); }
  void advance(Nanoseconds by) { now_ += by.count(); }

 private:
  std::atomic<std::int64_t> now_{1'000'000'000};
};

}  // namespace starlane
