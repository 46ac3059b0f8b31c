// The roles of a site, each built from a configuration: metadata, block store, mount, keeper. In
// one process they meet by direct call; apart, over the network; the code of a role does not know
// which. Start and stop from one thread.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/bytes.h"
#include "metrics/exposition.h"
#include "proto/block_service.h"
#include "proto/meta_service.h"
#include "wire/budgets.h"
#include "wire/holding.h"
#include "wire/network.h"
#include "wire/site.h"

namespace starlane::wire {

inline constexpr const char* kVersion = "0.1.0";

struct MetaOptions {
  std::vector<std::string> listen;  // beside the site's own socket
  std::uint64_t cache_bytes = own_budgets().meta_cache_bytes;
  std::size_t workers = own_budgets().workers;
  std::uint32_t lease_ms = 10'000;
  Milliseconds slow{1000};  // calls that take longer are logged; 0: none
};

struct StoreOptions {
  std::vector<std::string> directories;  // one target each; empty: the site's own
  std::vector<std::string> listen;
  std::string advertise;  // the endpoint that others reach it at; empty: the first of listen, or
                          // the site's socket
  std::size_t workers = own_budgets().workers;
  Milliseconds slow{1000};
};

struct MountOptions {
  std::string mountpoint;
  std::vector<std::string> binds;  // "volumes/NAME=/workspace"
  bool passthrough = true;
  std::uint64_t node_cache_bytes = own_budgets().node_cache_bytes;
  std::uint64_t block_cache_bytes = own_budgets().block_cache_bytes;
  std::uint64_t dirty_bytes = own_budgets().dirty_bytes;
  std::uint64_t tree_names_bytes = own_budgets().tree_names_bytes;
  std::size_t fetch_threads = own_budgets().fetch_threads;
  std::string access_log;   // a file; empty: none
  Milliseconds slow{1000};  // operations and calls that take longer are logged; 0: none
  bool quick_wake = true;   // keep processors from deep sleep while requests come fast
  bool hold = true;         // a holder starts another daemon when this one dies
  std::uint32_t hang_limit_ms = 5000;
};

struct KeeperOptions {
  std::uint32_t interval_ms = 500;
  std::uint64_t scrub_bytes_per_second = 32_MiB;  // of a target; 0: only when it is wanted
  std::uint32_t scrub_days = 7;                   // from one pass to the next
};

/// A running role. Destroying it stops it at once; `stop` stops it well.
class Role {
 public:
  virtual ~Role() = default;
  /// Finishes what was acknowledged. The first failure, as one sentence.
  virtual Status stop() = 0;
  /// Another process goes on with what this one serves, which ends next: what was begun is
  /// finished, nothing taken down.
  virtual void leave() {}
  /// Readable when the role has ended by itself (a mount that was unmounted); -1: never.
  virtual int ended() const { return -1; }
  /// Its figures, as a JSON object, for `starlane status`.
  virtual std::string figures() = 0;
  /// Adds its metrics to a page. Any thread.
  virtual void measure(metrics::Exposition& out) = 0;
  /// A page of its own, for a command; not_found: it has none of that name. Any thread.
  using Query = std::map<std::string, std::string>;
  virtual Result<std::string> ask(const std::string& /*method*/, const std::string& /*page*/,
                                  const Query& /*query*/) {
    return Status(Errc::not_found, "no such page");
  }
};

class MetaRole : public Role {
 public:
  static Result<std::unique_ptr<MetaRole>> start(const Site& site, const MetaOptions& options);
  virtual MetaService& service() = 0;
  /// Starts the regular flushes. Before each flush of the engine the blocks of all stores that
  /// answer are brought to their devices. Before the first change; the network outlives the role's
  /// last flush.
  virtual Status sync_before_flush(Network& network) = 0;
};

class StoreRole : public Role {
 public:
  /// Waits for `meta`, which says of what cluster the targets are and which ids are free.
  static Result<std::unique_ptr<StoreRole>> open(const Site& site, MetaService& meta,
                                                 const StoreOptions& options);
  /// Once it serves: puts its targets on the cluster map, and says now and then how full they are.
  virtual Status join() = 0;
  virtual BlockService& service() = 0;
  /// Where others reach it, as the cluster map says.
  virtual const std::string& endpoint() const = 0;
};

/// held: this process's holder, or null.
Result<std::unique_ptr<Role>> start_mount(Network& network, MetaService& meta,
                                          const MountOptions& options, Held* held);
Result<std::unique_ptr<Role>> start_keeper(Network& network, MetaService& meta,
                                           const KeeperOptions& options);

/// This machine, as sessions show it.
std::string host_name();

/// Writes each role's figures to the site's state file once a second, until destroyed.
class StateWriter {
 public:
  /// metrics: where the process serves them.
  StateWriter(const Site& site, std::vector<std::pair<std::string, Role*>> roles,
              std::vector<std::string> metrics);
  ~StateWriter();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace starlane::wire
