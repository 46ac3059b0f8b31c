#include "wire/network.h"

#include "common/rng.h"
#include "metrics/merge.h"
#include "net/shm/shm_fabric.h"
#include "rpc/block_stub.h"
#include "rpc/meta_stub.h"
#ifdef SL_HAVE_UCX
#include "net/ucx/ucx_fabric.h"
#endif

namespace starlane::wire {
namespace {

rpc::ChannelOptions channel_options(net::Purpose purpose, std::uint64_t nonce,
                                    net::MemoryFabric* fabric) {
  rpc::ChannelOptions options;
  options.purpose = purpose;
  options.mount_nonce = nonce;
  options.fabric = fabric;
  return options;
}

Result<std::unique_ptr<net::MemoryFabric>> make_fabric(Bulk bulk) {
  if (bulk == Bulk::by_place) return net::make_shm_fabric();
#ifdef SL_HAVE_UCX
  return net::make_ucx_fabric();
#else
  return Status(Errc::unsupported, "this starlane was built without UCX; leave --ucx away");
#endif
}

}  // namespace

/// One server: its channels for metadata, for waiting and for data, which never share a connection.
struct Network::Peer {
  Peer(const net::Endpoint& endpoint, const net::Key& key,
       std::span<net::Transport* const> transports, std::uint64_t nonce, net::MemoryFabric* fabric)
      : meta_channel(endpoint, key, transports,
                     channel_options(net::Purpose::meta, nonce, nullptr)),
        wait_channel(endpoint, key, transports,
                     channel_options(net::Purpose::wait, nonce, nullptr)),
        data_channel(endpoint, key, transports,
                     channel_options(net::Purpose::data, nonce, fabric)) {}

  rpc::Channel meta_channel;
  rpc::Channel wait_channel;
  rpc::Channel data_channel;
  rpc::MetaStub meta{meta_channel, &wait_channel};
  rpc::BlockStub blocks{data_channel};
};

Network::Network(net::Key key, Bulk bulk, std::unique_ptr<net::MemoryFabric> fabric)
    : key_(key), bulk_(bulk), fabric_(std::move(fabric)) {}
Network::~Network() = default;

Result<std::unique_ptr<Network>> Network::open(const std::string& key_file, Bulk bulk) {
  const net::Key key = SL_TRY(net::load_key(key_file));
  auto fabric = SL_TRY(make_fabric(bulk));
  return std::unique_ptr<Network>(new Network(key, bulk, std::move(fabric)));
}

const char* Network::bulk() const {
  return bulk_ == Bulk::ucx ? "ucx, where both ends reach it"
                            : "shared memory inside a host, stream between hosts";
}

Result<Network::Peer*> Network::peer(const std::string& endpoint) {
  std::unique_ptr<Peer>& found = peers_[endpoint];
  if (!found) {
    const net::Endpoint parsed = SL_TRY(net::Endpoint::parse(endpoint));
    const bool reachable = bulk_ == Bulk::ucx || parsed.kind == net::Endpoint::Kind::unix_socket;
    found = std::make_unique<Peer>(parsed, key_, transports_, random_seed(),
                                   reachable ? fabric_.get() : nullptr);
  }
  return found.get();
}

Result<MetaService*> Network::meta(const std::string& endpoint) {
  MutexLock lock(m_);
  Peer* found = SL_TRY(peer(endpoint));
  return &found->meta;
}

std::shared_ptr<BlockService> Network::local_blocks(const std::string& endpoint) {
  MutexLock lock(m_);
  const auto here = local_.find(endpoint);
  if (here == local_.end()) return nullptr;
  return {std::shared_ptr<void>(), here->second};  // not owned: it outlives us
}

std::shared_ptr<BlockService> Network::blocks(const std::string& endpoint) {
  if (auto here = local_blocks(endpoint)) return here;
  MutexLock lock(m_);
  const Result<Peer*> found = peer(endpoint);
  if (!found.ok()) return nullptr;
  return {std::shared_ptr<void>(), &(*found)->blocks};
}

rpc::Channel::Counts Network::counts() const {
  rpc::Channel::Counts all;
  MutexLock lock(m_);
  for (const auto& [endpoint, peer] : peers_)
    for (const rpc::Channel* channel : {&peer->meta_channel, &peer->data_channel}) {
      const rpc::Channel::Counts one = channel->counts();
      all.connects += one.connects;
      all.failed_connects += one.failed_connects;
      all.repeats += one.repeats;
      all.attached += one.attached;
      all.open += one.open;
    }
  return all;
}

Network::Ways Network::ways() const {
  Ways all;
  MutexLock lock(m_);
  for (const auto& [endpoint, peer] : peers_) {
    all.meta += peer->meta_channel.way();
    all.data += peer->data_channel.way();
  }
  return all;
}

void Network::add_local(const std::string& endpoint, BlockService& service) {
  MutexLock lock(m_);
  local_[endpoint] = &service;
}

Result<std::unique_ptr<rpc::Server>> Network::serve(const Served& services,
                                                    const std::vector<std::string>& endpoints) {
  rpc::ServerOptions options;
  options.workers = services.workers;
  options.fabric = fabric_.get();
  auto server = std::make_unique<rpc::Server>(
      options, rpc::Services{services.meta, services.blocks}, key_, transports_);
  SL_TRY(server->start());
  for (const std::string& text : endpoints) {
    const net::Endpoint endpoint = SL_TRY(net::Endpoint::parse(text));
    const Result<net::Endpoint> listening = server->listen(endpoint);
    if (!listening.ok()) return listening.status();
  }
  return server;
}

}  // namespace starlane::wire
