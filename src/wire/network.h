// How this process reaches servers: the key, the transports, one channel a server and purpose, and
// the services that run in this very process, which are called directly. Any thread.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "common/mutex.h"
#include "net/exposed_memory.h"
#include "net/key.h"
#include "net/tcp/tcp_transport.h"
#include "proto/block_service.h"
#include "proto/meta_service.h"
#include "rpc/channel.h"
#include "rpc/server.h"

namespace starlane::wire {

/// How the bytes of blocks travel between processes. by_place: through shared memory inside a host
/// (unix sockets), behind their frame between hosts. ucx: moved by UCX into and out of memory that
/// the client exposes. Where the ends cannot reach it, behind their frame.
enum class Bulk : std::uint8_t { by_place, ucx };

class Network {
 public:
  /// Errors: those of net::load_key; unsupported: UCX is wanted and cannot be had.
  static Result<std::unique_ptr<Network>> open(const std::string& key_file,
                                               Bulk bulk = Bulk::by_place);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  /// The metadata server at an endpoint; connects when first called. Lives as long as the network.
  Result<MetaService*> meta(const std::string& endpoint) SL_EXCLUDES(m_);
  /// The block server at an endpoint, or null when the endpoint cannot be understood.
  std::shared_ptr<BlockService> blocks(const std::string& endpoint) SL_EXCLUDES(m_);
  /// The one of this very process at an endpoint; null: it is another's.
  std::shared_ptr<BlockService> local_blocks(const std::string& endpoint) SL_EXCLUDES(m_);
  /// How bulk data goes to other processes, for people.
  const char* bulk() const;
  /// From now on `endpoint` is this object, which outlives the network.
  void add_local(const std::string& endpoint, BlockService& service) SL_EXCLUDES(m_);

  /// Of the channels to other processes.
  rpc::Channel::Counts counts() const SL_EXCLUDES(m_);
  struct Ways {
    metrics::Counted meta, data;  // rpc::Channel::way, by purpose
  };
  Ways ways() const SL_EXCLUDES(m_);

  struct Served {
    MetaService* meta = nullptr;
    BlockService* blocks = nullptr;
    std::size_t workers = 16;
  };
  /// Listens on all endpoints. Errors: exists when another process listens there, invalid.
  Result<std::unique_ptr<rpc::Server>> serve(const Served& services,
                                             const std::vector<std::string>& endpoints);

 private:
  struct Peer;
  Network(net::Key key, Bulk bulk, std::unique_ptr<net::MemoryFabric> fabric);
  Result<Peer*> peer(const std::string& endpoint) SL_REQUIRES(m_);

  const net::Key key_;
  const Bulk bulk_;
  const std::unique_ptr<net::MemoryFabric> fabric_;
  net::TcpTransport tcp_;
  std::vector<net::Transport*> transports_{&tcp_};
  mutable Mutex m_;
  std::map<std::string, std::unique_ptr<Peer>> peers_ SL_GUARDED_BY(m_);
  std::map<std::string, BlockService*> local_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::wire
