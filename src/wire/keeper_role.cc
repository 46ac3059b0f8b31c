// Background work of a site, as a role.
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "keeper/keeper.h"
#include "wire/block_router.h"
#include "wire/fsck.h"
#include "wire/roles.h"

namespace starlane::wire {
namespace {

class KeeperRole final : public Role {
 public:
  KeeperRole(Network& network, MetaService& meta, const keeper::Options& options)
      : router_(meta, network), keeper_(meta, router_, system_clock(), options) {
    keeper_.start();
  }
  ~KeeperRole() override { keeper_.stop(); }

  Status stop() override {
    keeper_.stop();
    return {};
  }

  std::string figures() override {
    const keeper::Figures f = keeper_.figures();
    return nlohmann::json{{"runs", f.runs},
                          {"failed_runs", f.failed_runs},
                          {"removed_slices", f.removed_slices},
                          {"merged_chunks", f.merged_chunks},
                          {"freed_inodes", f.freed_inodes},
                          {"expired_sessions", f.expired_sessions},
                          {"orphan_slices", f.orphan_slices},
                          {"scrubbed_blocks", f.scrub.blocks},
                          {"scrubbed_bytes", f.scrub.bytes},
                          {"damaged_blocks", f.scrub.damaged},
                          {"behind", f.behind},
                          {"last_failure", f.last_failure}}
        .dump();
  }

  void measure(metrics::Exposition& out) override {
    const keeper::Figures f = keeper_.figures();
    out.counter("starlane_keeper_runs_total", "Rounds of background work", f.runs);
    out.counter("starlane_keeper_failed_runs_total", "Rounds in which something failed",
                f.failed_runs);
    out.counter("starlane_keeper_removed_slices_total", "Dead slices whose blocks were removed",
                f.removed_slices);
    out.counter("starlane_keeper_merged_chunks_total", "Chunks whose slices were merged",
                f.merged_chunks);
    out.counter("starlane_keeper_merged_bytes_total", "Bytes written by merges", f.merged_bytes);
    out.counter("starlane_keeper_freed_inodes_total", "Inodes freed after unlink", f.freed_inodes);
    out.counter("starlane_keeper_expired_sessions_total", "Sessions ended for silence",
                f.expired_sessions);
    out.counter("starlane_keeper_orphan_slices_total", "Slices of dead sessions removed",
                f.orphan_slices);
    out.counter("starlane_keeper_scrubbed_blocks_total", "Blocks read back and checked",
                f.scrub.blocks);
    out.counter("starlane_keeper_scrubbed_bytes_total", "Bytes read back and checked",
                f.scrub.bytes);
    out.counter("starlane_keeper_damaged_blocks_total", "Blocks that failed their check",
                f.scrub.damaged);
    out.counter("starlane_keeper_scrubs_total", "Targets read back from end to end",
                f.scrub.passes);
    out.gauge("starlane_keeper_behind", "1: the last round left work", f.behind ? 1 : 0);
  }

 private:
  BlockRouter router_;
  keeper::Keeper keeper_;
};

}  // namespace

Result<std::unique_ptr<Role>> start_keeper(Network& network, MetaService& meta,
                                           const KeeperOptions& options) {
  keeper::Options keeper;
  keeper.host = host_name();
  keeper.pace = Milliseconds(options.interval_ms);
  keeper.scrub.bytes_per_second = options.scrub_bytes_per_second;
  keeper.scrub.interval = std::chrono::hours(24) * options.scrub_days;
  return std::unique_ptr<Role>(new KeeperRole(network, meta, keeper));
}

}  // namespace starlane::wire
