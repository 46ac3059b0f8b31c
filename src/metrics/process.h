// What the kernel knows of this process, under the names that Prometheus gives such figures. Any
// thread.
#pragma once
#include "metrics/exposition.h"

namespace starlane::metrics {

void add_process(Exposition& out);

}  // namespace starlane::metrics
