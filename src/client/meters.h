// What a mount's client counts on its hot paths, for the metrics of its process. Any thread.
#pragma once
#include "metrics/meter.h"

namespace starlane::client {

struct Meters {
  metrics::Counter name_hits, name_misses;
  metrics::Counter attribute_hits, attribute_misses;
  metrics::Counter block_hit_bytes, block_miss_bytes;  // asked of the block cache by readers
};

}  // namespace starlane::client
