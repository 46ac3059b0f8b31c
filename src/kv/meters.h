// What an engine counts, for the metrics of its process. Any thread.
#pragma once
#include "metrics/meter.h"

namespace starlane::kv {

struct Meters {
  metrics::Histogram commit;  // of a commit that was judged, whatever came of it
  metrics::Histogram group;   // commits written as one batch
  metrics::Histogram write;   // of a batch
  metrics::Histogram flush;   // to the device, the hook before it included
  metrics::Counter conflicts, failures, failed_flushes;
};

}  // namespace starlane::kv
