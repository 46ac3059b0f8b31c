#include "rpc/server.h"

#include <google/protobuf/stubs/logging.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "common/errno.h"
#include "common/log.h"
#include "common/thread_pool.h"
#include "proto/frame.h"

namespace starlane::rpc {
namespace {

constexpr std::uint64_t kWake = 0;  // epoll data of wake_; ids of links and listeners begin at 1
constexpr int kSweepMs = 100;       // while strangers are waited for
constexpr int kIdleSweepMs = 1'000;
constexpr int kAcceptPauseMs = 50;  // when no descriptor is left

bool watch(int epoll, int operation, int fd, std::uint32_t events, std::uint64_t id) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  return ::epoll_ctl(epoll, operation, fd, &event) == 0;
}

}  // namespace

/// One accepted connection. Its fields belong to the acceptor in `stranger`, afterwards to the
/// worker that epoll woke for it; only the atomics and connection->shutdown() are for the sweep.
struct Server::Link {
  enum class State { stranger, idle, partial, serving };

  Link(std::uint64_t number, std::unique_ptr<net::Connection> stream, net::MemoryFabric* fabric)
      : id(number),
        connection(std::move(stream)),
        handshake(fabric != nullptr ? net::kFeatureExposedMemory : std::uint8_t{0}) {
    peer.fabric = fabric;
    enter(State::stranger);
  }
  void enter(State next) {
    since_ns = system_clock().boot().count();
    state = next;
  }

  const std::uint64_t id;
  const std::unique_ptr<net::Connection> connection;
  net::ServerHandshake handshake;
  Peer peer;
  std::atomic<State> state;            // read by the sweep; pairs with enter()
  std::atomic<std::int64_t> since_ns;  // of `state`, on the boot clock
  // From who arms the connection (release) to the worker that epoll wakes for it (acquire): the
  // kernel orders them, but says so neither to the language nor to TSan.
  std::atomic<std::uint32_t> handover{0};
};

Server::Server(ServerOptions options, Services services, const net::Key& key,
               std::span<net::Transport* const> transports)
    : options_(options),
      services_(services),
      key_(key),
      transports_(transports.begin(), transports.end()) {
  SL_CHECK(options_.workers > 0 && options_.connection_limit > 0 && options_.handshake_limit > 0);
}

Server::~Server() { stop(); }

Status Server::start() {
  SL_CHECK(threads_.empty());
  // What a peer sends is answered, not written to standard error line by line.
  google::protobuf::SetLogHandler(nullptr);
  front_.reset(::epoll_create1(EPOLL_CLOEXEC));
  ready_.reset(::epoll_create1(EPOLL_CLOEXEC));
  wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!front_ || !ready_ || !wake_) return system_error("cannot start a server", errno);
  if (!watch(front_.get(), EPOLL_CTL_ADD, wake_.get(), EPOLLIN, kWake) ||
      !watch(ready_.get(), EPOLL_CTL_ADD, wake_.get(), EPOLLIN, kWake)) {
    return system_error("cannot start a server", errno);
  }
  threads_.emplace_back([this] { accept_loop(); });
  for (std::size_t i = 0; i < options_.workers; ++i)
    threads_.emplace_back([this, i] { work_loop(i); });
  return {};
}

Result<net::Endpoint> Server::listen(const net::Endpoint& endpoint) {
  net::Transport* transport = SL_TRY(net::transport_for(transports_, endpoint));
  std::unique_ptr<net::Listener> listener = SL_TRY(transport->listen(endpoint));
  net::Endpoint local = listener->local();
  MutexLock lock(m_);
  if (stopping_) return Status(Errc::unavailable, "the server is stopping");
  const std::uint64_t id = next_id_++;
  if (!watch(front_.get(), EPOLL_CTL_ADD, listener->descriptor(), EPOLLIN, id)) {
    return system_error("cannot watch " + local.to_string(), errno);
  }
  listeners_.emplace(id, std::move(listener));
  return local;
}

// ---- The acceptor ----

void Server::accept_loop() {
  name_this_thread("rpc-accept");
  bool strangers = false;
  while (!stopping_) {
    epoll_event events[16];
    const int count = ::epoll_wait(front_.get(), events, 16, strangers ? kSweepMs : kIdleSweepMs);
    for (int i = 0; i < count && !stopping_; ++i) {
      const std::uint64_t id = events[i].data.u64;
      if (id == kWake) continue;
      if (net::Listener* listener = listener_of(id)) {
        accept_all(*listener);
      } else if (const LinkRef link = find(id)) {
        shake_hands(link);
      }
    }
    strangers = sweep();
  }
}

void Server::accept_all(net::Listener& listener) {
  while (!stopping_) {
    auto connection = listener.accept();
    if (!connection.ok()) {
      SL_LOG(warn, "rpc_accept_failed endpoint={} error=\"{}\"", listener.local().to_string(),
             connection.status().to_string());
      (void)::poll(nullptr, 0, kAcceptPauseMs);
      return;
    }
    if (*connection == nullptr) return;
    admit(std::move(*connection));
  }
}

void Server::admit(std::unique_ptr<net::Connection> connection) {
  cut_oldest_stranger();
  LinkRef link;
  {
    MutexLock lock(m_);
    link = std::make_shared<Link>(next_id_++, std::move(connection), options_.fabric);
    links_.emplace(link->id, link);
    ++counts_.accepted;
  }
  if (!watch(front_.get(), EPOLL_CTL_ADD, link->connection->descriptor(), EPOLLIN, link->id))
    remove(link);
}

/// Makes room in handshake_limit.
void Server::cut_oldest_stranger() {
  LinkRef oldest;
  {
    MutexLock lock(m_);
    std::size_t strangers = 0;
    for (const auto& [id, link] : links_) {
      if (link->state != Link::State::stranger) continue;
      ++strangers;
      if (oldest == nullptr || id < oldest->id) oldest = link;
    }
    if (strangers < options_.handshake_limit) return;
    ++counts_.cut;
  }
  remove(oldest);
}

void Server::shake_hands(const LinkRef& link) {
  const bool full = counts().connections > options_.connection_limit;
  const auto proven = link->handshake.advance(*link->connection, key_, full);
  if (proven.ok() && !*proven) return;
  if (!proven.ok())
    SL_LOG(debug, "rpc_handshake_refused cause=\"{}\"", proven.status().to_string());
  // Whoever sends a frame before it has our verdict is no client of ours.
  if (!proven.ok() || link->connection->buffered() != 0) {
    {
      MutexLock lock(m_);
      ++counts_.refused;
    }
    return remove(link);
  }
  link->peer.agreed = link->handshake.agreed();
  (void)::epoll_ctl(front_.get(), EPOLL_CTL_DEL, link->connection->descriptor(), nullptr);
  link->enter(Link::State::idle);
  const bool sleeps = link->peer.agreed.purpose == net::Purpose::wait;
  if (!(sleeps ? attend(link) : arm(*link, EPOLL_CTL_ADD))) remove(link);
}

/// Ends connections that have kept us waiting for too long. Strangers are ours; the others' workers
/// see the end. True while strangers are left.
bool Server::sweep() {
  std::vector<LinkRef> late;
  bool strangers = false;
  const std::int64_t now = system_clock().boot().count();
  {
    MutexLock lock(m_);
    for (const auto& [id, link] : links_) {
      const Nanoseconds age(now - link->since_ns);
      const Link::State state = link->state;
      const bool stranger = state == Link::State::stranger;
      strangers = strangers || stranger;
      if (stranger && age > options_.handshake_timeout) late.push_back(link);
      const bool overdue = (state == Link::State::idle && age > options_.idle_timeout) ||
                           (state == Link::State::partial && age > options_.peer.frame_timeout);
      if (overdue) link->connection->shutdown();
      if (overdue) ++counts_.cut;
    }
    counts_.cut += late.size();
  }
  for (const LinkRef& link : late) remove(link);
  join_attendants(/*all=*/false);
  return strangers;
}

// ---- Connections for calls that sleep ----

/// False: there are as many as may be, or can be.
bool Server::attend(const LinkRef& link) {
  join_attendants(/*all=*/false);
  if (attendants_.size() >= options_.wait_limit) return false;
  Attendant& attendant = attendants_.emplace_back();
  attendant.link = link;
  try {
    attendant.thread = std::thread([this, &attendant] { attend_loop(attendant); });
  } catch (const std::system_error& error) {
    SL_LOG(warn, "rpc_attend_failed error=\"{}\"", error.what());
    attendants_.pop_back();
    return false;
  }
  return true;
}

void Server::attend_loop(Attendant& attendant) {
  name_this_thread("rpc-attend");
  Scratch scratch;
  Link& link = *attendant.link;
  while (!stopping_) {
    pollfd events[] = {{link.connection->descriptor(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    if (::poll(events, 2, -1) < 0) continue;  // EINTR
    if (events[1].revents != 0 || !serve(link, scratch)) break;
  }
  remove(attendant.link);
  attendant.done.store(true, std::memory_order_release);
}

void Server::join_attendants(bool all) {
  std::erase_if(attendants_, [all](Attendant& attendant) {
    if (!all && !attendant.done.load(std::memory_order_acquire)) return false;
    attendant.thread.join();
    return true;
  });
}

// ---- The workers ----

void Server::work_loop(std::size_t number) {
  name_this_thread("rpc-work-" + std::to_string(number));
  Scratch scratch;
  while (!stopping_) {
    epoll_event event{};
    if (::epoll_wait(ready_.get(), &event, 1, -1) != 1 || event.data.u64 == kWake) continue;
    const LinkRef link = find(event.data.u64);
    if (link != nullptr && (!serve(*link, scratch) || !arm(*link, EPOLL_CTL_MOD))) remove(link);
  }
}

/// Serves what has arrived. False: the connection has ended.
bool Server::serve(Link& link, Scratch& scratch) {
  (void)link.handover.load(std::memory_order_acquire);
  do {
    const auto whole = link.connection->arrived(sizeof(FrameHeader));
    if (!whole.ok()) return false;
    if (!*whole) {  // wait for the rest without a worker
      if (link.connection->buffered() != 0 && link.state != Link::State::partial)
        link.enter(Link::State::partial);
      return true;
    }
    link.enter(Link::State::serving);
    calls_.fetch_add(1, std::memory_order_relaxed);
    const Status status =
        serve_call(*link.connection, link.peer, services_, options_.peer, scratch);
    link.enter(Link::State::idle);
    if (!status.ok()) {
      SL_LOG(debug, "rpc_connection_ended peer=\"{}\" cause=\"{}\"", link.connection->peer(),
             status.to_string());
      return false;
    }
  } while (link.connection->buffered() != 0 && !stopping_);
  return true;
}

bool Server::arm(Link& link, int operation) {
  link.handover.fetch_add(1, std::memory_order_release);
  return watch(ready_.get(), operation, link.connection->descriptor(),
               EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, link.id);
}

// ---- What both know ----

Server::LinkRef Server::find(std::uint64_t id) const {
  MutexLock lock(m_);
  const auto found = links_.find(id);
  return found == links_.end() ? nullptr : found->second;
}

net::Listener* Server::listener_of(std::uint64_t id) const {
  MutexLock lock(m_);
  const auto found = listeners_.find(id);
  return found == listeners_.end() ? nullptr : found->second.get();
}

/// Closing the descriptor takes it out of epoll.
void Server::remove(const LinkRef& link) {
  MutexLock lock(m_);
  links_.erase(link->id);
}

bool Server::all_links_idle() const {
  MutexLock lock(m_);
  return std::none_of(links_.begin(), links_.end(), [](const auto& entry) {
    return entry.second->state == Link::State::serving;
  });
}

Server::Counts Server::counts() const {
  MutexLock lock(m_);
  Counts counts = counts_;
  counts.connections = links_.size();
  counts.calls = calls_.load(std::memory_order_relaxed);
  return counts;
}

Server::Load Server::load() const {
  Load load;
  load.workers = options_.workers;
  std::vector<pollfd> idle;
  MutexLock lock(m_);
  for (const auto& [id, link] : links_) {
    const Link::State state = link->state;
    if (state == Link::State::serving) ++load.serving;
    if (state == Link::State::idle) idle.push_back({link->connection->descriptor(), POLLIN, 0});
  }
  if (::poll(idle.data(), idle.size(), 0) > 0)
    load.queued = static_cast<std::size_t>(std::count_if(
        idle.begin(), idle.end(), [](const pollfd& one) { return one.revents != 0; }));
  return load;
}

void Server::stop() {
  MutexLock stopping(stop_m_);
  {
    MutexLock lock(m_);  // no listener joins after this
    stopping_ = true;
  }
  if (threads_.empty()) return;
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
  threads_.front().join();
  const Deadline drained = Deadline::after(options_.drain_timeout);
  while (!all_links_idle() && !drained.passed()) (void)::poll(nullptr, 0, 1);
  {
    MutexLock lock(m_);
    listeners_.clear();
    for (const auto& [id, link] : links_) link->connection->shutdown();
  }
  for (std::size_t i = 1; i < threads_.size(); ++i) threads_[i].join();
  threads_.clear();
  join_attendants(/*all=*/true);
  MutexLock lock(m_);
  links_.clear();
}

}  // namespace starlane::rpc
