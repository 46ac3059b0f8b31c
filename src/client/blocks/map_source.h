// The cluster map as this client last heard it: asked for once, then again when a server says that
// it is stale or a block is not where it should be. Any thread.
#pragma once
#include <memory>

#include "client/blocks/interrupts.h"
#include "placement/cluster_map.h"
#include "proto/meta_service.h"

namespace starlane::client {

class MapSource {
 public:
  explicit MapSource(MetaService& meta) : meta_(meta) {}

  /// The map; blocks until there is a first one. Errors: interrupted; what the server answers for
  /// good.
  Result<std::shared_ptr<const ClusterMap>> get(const Interrupts::Scope& scope) SL_EXCLUDES(m_);
  /// One that was asked for after this call began, unless another than `seen` is here already. Asks
  /// once: on a passing failure it answers `seen`.
  Result<std::shared_ptr<const ClusterMap>> newer(std::shared_ptr<const ClusterMap> seen)
      SL_EXCLUDES(m_);

 private:
  Result<std::shared_ptr<const ClusterMap>> ask() SL_EXCLUDES(m_);

  MetaService& meta_;
  Mutex m_;
  std::shared_ptr<const ClusterMap> map_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::client
