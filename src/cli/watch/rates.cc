#include "cli/watch/rates.h"

#include <algorithm>
#include <cmath>

namespace starlane::cli {
namespace {

/// What counters have grown by; those of a process that was started anew begin at 0.
class Growth {
 public:
  Growth(const Page& before, const Page& now, double seconds)
      : before_(before), now_(now), seconds_(seconds) {}

  double of(const std::string& name, const Page::Labels& with = {}) const {
    return std::max(0.0, now_.sum(name, with) - before_.sum(name, with));
  }
  double rate(const std::string& name, const Page::Labels& with = {}) const {
    return of(name, with) / seconds_;
  }
  /// Milliseconds of one, of a histogram in seconds.
  double mean_ms(const std::string& name, const Page::Labels& with = {}) const {
    const double count = of(name + "_count", with);
    return count == 0 ? 0 : of(name + "_sum", with) / count * 1e3;
  }
  static double share(double hits, double misses) {
    return hits + misses == 0 ? std::nan("") : hits / (hits + misses);
  }

 private:
  const Page& before_;
  const Page& now_;
  const double seconds_;
};

}  // namespace

Rates rates_between(const Page& before, const Page& now, double seconds) {
  const Growth growth(before, now, seconds);
  Rates out;
  out.operations = growth.rate("starlane_fuse_operation_seconds_count");
  out.failures = growth.rate("starlane_fuse_operation_failures_total");
  out.operation_ms = growth.mean_ms("starlane_fuse_operation_seconds");
  out.read_bytes = growth.rate("starlane_fuse_read_bytes_total");
  out.written_bytes = growth.rate("starlane_fuse_written_bytes_total");
  out.fetched_bytes = growth.rate("starlane_client_store_get_bytes_total");
  out.put_bytes = growth.rate("starlane_client_store_put_bytes_total");
  out.meta_calls = growth.rate("starlane_client_meta_call_seconds_count");
  out.meta_ms = growth.mean_ms("starlane_client_meta_call_seconds");
  out.store_ms = growth.mean_ms("starlane_client_store_call_seconds");
  out.engine_commits = growth.rate("starlane_engine_commit_seconds_count");
  out.engine_ms = growth.mean_ms("starlane_engine_commit_seconds");
  out.block_hits = Growth::share(growth.of("starlane_client_block_cache_hit_bytes_total"),
                                 growth.of("starlane_client_block_cache_miss_bytes_total"));
  const std::string lookups = "starlane_client_cache_lookups_total";
  out.name_hits = Growth::share(growth.of(lookups, {{"outcome", "hit"}}),
                                growth.of(lookups, {{"outcome", "miss"}}));
  out.dirty_bytes = now.sum("starlane_client_dirty_bytes");
  out.in_flight = now.sum("starlane_fuse_in_flight");
  return out;
}

}  // namespace starlane::cli
