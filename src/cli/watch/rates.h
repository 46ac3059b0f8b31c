// What `stats` shows of two pages of metrics and the time between them. Pure; any thread.
#pragma once
#include "cli/watch/page.h"

namespace starlane::cli {

struct Rates {
  double operations = 0, failures = 0;               // of the kernel, a second
  double operation_ms = 0;                           // mean time of one
  double read_bytes = 0, written_bytes = 0;          // by applications, a second
  double fetched_bytes = 0, put_bytes = 0;           // between client and block servers, a second
  double meta_calls = 0, meta_ms = 0, store_ms = 0;  // as the client saw them
  double engine_commits = 0, engine_ms = 0;
  double block_hits = 0, name_hits = 0;  // share; NaN: nobody asked
  double dirty_bytes = 0, in_flight = 0;
};

Rates rates_between(const Page& before, const Page& now, double seconds);

}  // namespace starlane::cli
