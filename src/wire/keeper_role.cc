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
                          {"behind", f.behind},
                          {"last_failure", f.last_failure}}
        .dump();
  }

 private:
  BlockRouter router_;
  keeper::Keeper keeper_;
};

}  // namespace

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

Result<std::unique_ptr<Role>> start_keeper(Network& network, MetaService& meta,
                                           const KeeperOptions& options) {
  keeper::Options keeper;
  keeper.host = host_name();
  keeper.pace = Milliseconds(options.interval_ms);
  return std::unique_ptr<Role>(new KeeperRole(network, meta, keeper));
}

}  // namespace starlane::wire
