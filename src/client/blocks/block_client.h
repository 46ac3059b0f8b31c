// Blocks by name: finds the targets of a block on the cluster map, moves its bytes and checks them
// end to end, waits for servers that are away, and remembers which targets hold puts that no sync
// has made durable yet. Any thread; blocks.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/blocks/interrupts.h"
#include "client/blocks/map_source.h"
#include "common/landing.h"
#include "common/mutex.h"
#include "proto/block_service.h"

namespace starlane::client {

/// The service behind an endpoint of the cluster map; null when it cannot be reached for now. Any
/// thread.
using BlockResolver = std::function<std::shared_ptr<BlockService>(const std::string& endpoint)>;

/// Copies that a slice of this layout has. unsupported: a later version's layout.
Result<std::size_t> copies_of_layout(std::uint32_t layout);

class BlockClient {
 public:
  BlockClient(MetaService& meta, BlockResolver resolve)
      : maps_(meta), resolve_(std::move(resolve)) {}

  enum class Persistence : std::uint8_t {
    wait,     // a server that is away is waited for
    try_once  // passing failures are answered at once: for what nobody waits for (read-ahead)
  };
  struct Get {
    BlockId block;
    std::uint32_t layout = 0;
    std::uint32_t offset = 0;
    Persistence persistence = Persistence::wait;
    SessionId session;
  };
  /// Fills `out` with verified bytes. Errors: not_found (no target has it: read the file's map
  /// again), corrupt (every copy), interrupted.
  Status get(const Get& request, const Landing& out, const Interrupts::Scope& scope);

  struct Put {
    BlockId block;
    std::uint32_t layout = 0;
    SessionId session;
    std::uint64_t attachment_epoch = 0;
    std::vector<ByteSpan> pieces;  // the block, in order
  };
  /// Stores every copy, accepted; computes the checksums once. Answers the epoch of the map it was
  /// placed by. Errors: no_space, fenced, io, interrupted.
  Result<std::uint64_t> put(const Put& request, const Interrupts::Scope& scope);

  /// Every put that returned before is durable when this returns ok.
  Status sync(const Interrupts::Scope& scope) SL_EXCLUDES(m_);

  /// Takes back blocks that were put and will never be committed. One try: what is left goes with
  /// the session.
  void remove(BranchId owner, SliceId slice, std::uint32_t layout, const Interrupts::Scope& scope);

  struct Figures {
    std::uint64_t fetched_bytes = 0, put_bytes = 0;
  };
  Figures figures() const { return {fetched_.load(), put_.load()}; }

 private:
  struct Dirty {
    std::uint64_t puts = 0;    // that returned
    std::uint64_t synced = 0;  // of those
  };
  Status get_from(const Target& target, const Get& request, const Landing& out, int tries);
  Status get_from_any(const ClusterMap& map, const Get& request, const Landing& out, int tries);
  Status put_to(const ClusterMap& map, TargetId target, const Put& request,
                const std::vector<std::uint32_t>& checksums, int tries);
  Status put_copies(const ClusterMap& map, const Put& request,
                    const std::vector<std::uint32_t>& checksums, std::vector<TargetId>& done,
                    int tries);
  Status sync_target(TargetId target, const Interrupts::Scope& scope);

  MapSource maps_;
  const BlockResolver resolve_;
  std::atomic<std::uint64_t> fetched_{0}, put_{0};  // figures only: pair with nothing
  Mutex m_;
  std::map<TargetId, Dirty> dirty_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::client
