// What several histograms counted, as one.
#pragma once
#include "metrics/meter.h"

namespace starlane::metrics {

inline Counted& operator+=(Counted& sum, const Counted& other) {
  for (std::size_t i = 0; i < kBuckets; ++i) sum.buckets[i] += other.buckets[i];
  sum.sum += other.sum;
  return sum;
}

}  // namespace starlane::metrics
