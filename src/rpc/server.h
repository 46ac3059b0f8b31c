// Serves a MetaService and/or a BlockService on any number of endpoints. One thread accepts
// connections and lets peers prove themselves, without ever waiting for one; a bounded pool of
// workers sleeps on those that have, and the worker that finds a frame reads, runs and answers it.
// Connections for calls that sleep (Purpose::wait) have a thread each, so that no worker sleeps.
// listen, stop, counts: any thread.
#pragma once
#include <atomic>
#include <list>
#include <memory>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "common/mutex.h"
#include "common/unique_fd.h"
#include "rpc/serve_call.h"

namespace starlane::rpc {

struct ServerOptions {
  std::size_t workers = 16;             // calls at once; others wait in their sockets
  std::size_t connection_limit = 1024;  // further ones are refused with busy
  std::size_t wait_limit = 256;         // of them, those with a thread of their own
  std::size_t handshake_limit = 64;     // that have not proven themselves; the oldest goes
  Milliseconds handshake_timeout{2'000};
  Milliseconds idle_timeout{600'000};  // longer than any client's
  Milliseconds drain_timeout{5'000};   // for calls in progress when stopping; then they are cut
  PeerLimits peer;
  net::MemoryFabric* fabric = nullptr;  // outlives the server; null: bulk on the stream only
};

class Server {
 public:
  /// Services, key and transports outlive the server.
  Server(ServerOptions options, Services services, const net::Key& key,
         std::span<net::Transport* const> transports);
  /// Stops.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Makes the threads; serves from the first listen on. Once.
  Status start();
  /// Begins to accept there. Returns where, with the port that the system chose.
  Result<net::Endpoint> listen(const net::Endpoint& endpoint) SL_EXCLUDES(m_);
  /// Accepts no more, lets calls in progress end, closes everything. Idempotent.
  void stop() SL_EXCLUDES(m_);

  struct Counts {
    std::uint64_t accepted = 0, refused = 0, calls = 0, cut = 0;
    std::size_t connections = 0;
  };
  Counts counts() const SL_EXCLUDES(m_);
  /// Now: workers in a call, and connections on which a request has arrived that no worker has
  /// taken up. Asks the kernel about each idle connection.
  struct Load {
    std::size_t workers = 0, serving = 0, queued = 0;
  };
  Load load() const SL_EXCLUDES(m_);

 private:
  struct Link;
  using LinkRef = std::shared_ptr<Link>;
  /// The thread of a connection for calls that sleep.
  struct Attendant {
    LinkRef link;
    std::atomic<bool> done{false};  // its last store; pairs with join_attendants
    std::thread thread;
  };

  void accept_loop();
  void accept_all(net::Listener& listener);
  void admit(std::unique_ptr<net::Connection> connection) SL_EXCLUDES(m_);
  void shake_hands(const LinkRef& link);
  bool sweep() SL_EXCLUDES(m_);
  void cut_oldest_stranger() SL_EXCLUDES(m_);

  bool attend(const LinkRef& link);
  void attend_loop(Attendant& attendant);
  void join_attendants(bool all);

  void work_loop(std::size_t number);
  bool serve(Link& link, Scratch& scratch);
  bool arm(Link& link, int operation);

  LinkRef find(std::uint64_t id) const SL_EXCLUDES(m_);
  void remove(const LinkRef& link) SL_EXCLUDES(m_);
  net::Listener* listener_of(std::uint64_t id) const SL_EXCLUDES(m_);
  bool all_links_idle() const SL_EXCLUDES(m_);

  const ServerOptions options_;
  const Services services_;
  const net::Key& key_;
  const std::vector<net::Transport*> transports_;

  UniqueFd front_;  // epoll of listeners and of connections in the handshake: the acceptor's
  UniqueFd ready_;  // epoll of proven connections, one shot each: the workers'
  UniqueFd wake_;   // in both, readable once stopping
  std::atomic<bool> stopping_{
      false};  // set by stop(), seen by every thread before it takes up work
  std::vector<std::thread> threads_;
  std::list<Attendant> attendants_;  // at most wait_limit; the acceptor's, and stop()'s after it

  mutable Mutex m_;
  std::uint64_t next_id_ SL_GUARDED_BY(m_) = 1;
  std::unordered_map<std::uint64_t, LinkRef> links_ SL_GUARDED_BY(m_);
  std::unordered_map<std::uint64_t, std::unique_ptr<net::Listener>> listeners_ SL_GUARDED_BY(m_);
  Counts counts_ SL_GUARDED_BY(m_);
  std::atomic<std::uint64_t> calls_{0};  // statistics only
  Mutex stop_m_;                         // one stop at a time; taken before m_
};

}  // namespace starlane::rpc
