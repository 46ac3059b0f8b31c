#include "net/tcp/tcp_transport.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <utility>

#include "common/errno.h"
#include "common/unique_fd.h"
#include "net/tcp/socket_connection.h"

namespace starlane::net {
namespace {

constexpr int kBacklog = 512;
constexpr int kUnixBuffer = 1 << 20;  // of unix sockets; those of tcp grow by themselves

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

Address unix_address(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  SL_CHECK(path.size() < sizeof name.sun_path);  // Endpoint::parse has seen to it
  std::memcpy(name.sun_path, path.data(), path.size());
  Address address;
  std::memcpy(&address.storage, &name, sizeof name);
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  return address;
}

Result<Address> tcp_address(const Endpoint& endpoint) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  const int error = ::getaddrinfo(endpoint.address.c_str(), std::to_string(endpoint.port).c_str(),
                                  &hints, &found);
  if (error != 0) {
    return Status(Errc::unavailable,
                  "cannot find the host of " + endpoint.to_string() + ": " + ::gai_strerror(error));
  }
  Address address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  ::freeaddrinfo(found);
  return address;
}

Result<Address> address_of(const Endpoint& endpoint) {
  if (endpoint.kind == Endpoint::Kind::unix_socket) return unix_address(endpoint.address);
  return tcp_address(endpoint);
}

Result<UniqueFd> new_socket(int family) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return system_error("cannot make a socket", errno);
  return fd;
}

void set_option(int fd, int level, int name, int value) {
  (void)::setsockopt(fd, level, name, &value, sizeof value);
}

/// What a silent peer means: a dead host is noticed within half a minute, mid-call or idle.
void tune(int fd, int family) {
  if (family == AF_UNIX) {
    set_option(fd, SOL_SOCKET, SO_SNDBUF, kUnixBuffer);
    set_option(fd, SOL_SOCKET, SO_RCVBUF, kUnixBuffer);
    return;
  }
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000);
}

Status no_answer(const Endpoint& endpoint, int error_number) {
  if (error_number == EACCES || error_number == EPERM) {
    return system_error("cannot connect to " + endpoint.to_string(), error_number);
  }
  return Status(Errc::unavailable,
                system_error("cannot connect to " + endpoint.to_string(), error_number).text());
}

Status connect_until(int fd, const Address& address, const Endpoint& endpoint, Deadline deadline) {
  while (::connect(fd, address.get(), address.length) != 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN && address.family() == AF_UNIX) {  // its backlog is full
      if (deadline.passed())
        return Status(Errc::timeout, endpoint.to_string() + " accepts no connections");
      (void)::poll(nullptr, 0, 1);
      continue;
    }
    if (errno != EINPROGRESS) return no_answer(endpoint, errno);
    const Status waited = poll_until(fd, POLLOUT, deadline);
    if (!waited.ok()) return waited.with("connecting to " + endpoint.to_string());
    int error = 0;
    socklen_t size = sizeof error;
    (void)::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    return error == 0 ? Status() : no_answer(endpoint, error);
  }
  return {};
}

class SocketListener final : public Listener {
 public:
  SocketListener(UniqueFd fd, Endpoint local) : fd_(std::move(fd)), local_(std::move(local)) {
    struct stat info {};
    if (is_file() && ::stat(local_.address.c_str(), &info) == 0) inode_ = info.st_ino;
  }
  ~SocketListener() override {  // only its own file: a successor may have replaced it
    struct stat info {};
    if (is_file() && ::stat(local_.address.c_str(), &info) == 0 && info.st_ino == inode_) {
      ::unlink(local_.address.c_str());
    }
  }
  Result<std::unique_ptr<Connection>> accept() override;
  int descriptor() const override { return fd_.get(); }
  const Endpoint& local() const override { return local_; }

 private:
  bool is_file() const { return local_.kind == Endpoint::Kind::unix_socket; }

  UniqueFd fd_;
  Endpoint local_;
  ino_t inode_ = 0;
};

std::string name_of_peer(const Address& address) {
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (address.family() == AF_UNIX ||
      ::getnameinfo(address.get(), address.length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "a local process";
  }
  return std::string(host) + ":" + port;
}

Result<std::unique_ptr<Connection>> SocketListener::accept() {
  Address peer;
  peer.length = sizeof peer.storage;
  for (;;) {
    UniqueFd fd(::accept4(fd_.get(), peer.get(), &peer.length, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      tune(fd.get(), is_file() ? AF_UNIX : peer.family());
      return std::unique_ptr<Connection>(std::make_unique<SocketConnection>(
          std::move(fd), is_file() ? "a local process" : name_of_peer(peer)));
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN) return std::unique_ptr<Connection>();
    return system_error("cannot accept a connection on " + local_.to_string(), errno);
  }
}

/// Removes a socket file that nobody listens on any more.
Status clear_path(const Endpoint& endpoint, const Address& address) {
  struct stat info {};
  if (::lstat(endpoint.address.c_str(), &info) != 0) return {};
  if (!S_ISSOCK(info.st_mode)) {
    return Status(Errc::exists, endpoint.address + " exists and is no socket; choose another path");
  }
  const UniqueFd probe = SL_TRY(new_socket(AF_UNIX));
  if (::connect(probe.get(), address.get(), address.length) == 0 || errno == EAGAIN) {
    return Status(Errc::exists, "another process listens on " + endpoint.to_string());
  }
  if (errno != ECONNREFUSED) return system_error("cannot use " + endpoint.to_string(), errno);
  if (::unlink(endpoint.address.c_str()) != 0)
    return system_error("cannot remove " + endpoint.address, errno);
  return {};
}

Status cannot_bind(const Endpoint& endpoint, int error_number) {
  if (error_number == EADDRINUSE) {
    return Status(Errc::exists, "another process listens on " + endpoint.to_string());
  }
  return system_error("cannot listen on " + endpoint.to_string(), error_number);
}

/// Binds, and for a file sees to it that it is never open to others, not even for a moment.
Status bind_to(int fd, const Endpoint& endpoint, const Address& address) {
  const bool file = endpoint.kind == Endpoint::Kind::unix_socket;
  if (file) (void)::fchmod(fd, 0600);  // the file is made with the socket's own mode
  if (!file) set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(fd, address.get(), address.length) != 0) return cannot_bind(endpoint, errno);
  if (file && ::chmod(endpoint.address.c_str(), 0600) != 0) {
    return system_error("cannot protect " + endpoint.address, errno);
  }
  return {};
}

}  // namespace

bool TcpTransport::serves(const Endpoint& endpoint) const {
  return endpoint.kind != Endpoint::Kind::loop;
}

Result<std::unique_ptr<Connection>> TcpTransport::connect(const Endpoint& endpoint,
                                                          Deadline deadline) {
  const Address address = SL_TRY(address_of(endpoint));
  UniqueFd fd = SL_TRY(new_socket(address.family()));
  tune(fd.get(), address.family());
  SL_TRY(connect_until(fd.get(), address, endpoint, deadline));
  return std::unique_ptr<Connection>(
      std::make_unique<SocketConnection>(std::move(fd), endpoint.to_string()));
}

Result<std::unique_ptr<Listener>> TcpTransport::listen(const Endpoint& endpoint) {
  Address address = SL_TRY(address_of(endpoint));
  UniqueFd fd = SL_TRY(new_socket(address.family()));
  if (endpoint.kind == Endpoint::Kind::unix_socket) SL_TRY(clear_path(endpoint, address));
  SL_TRY(bind_to(fd.get(), endpoint, address));
  if (::listen(fd.get(), kBacklog) != 0) return cannot_bind(endpoint, errno);
  Endpoint local = endpoint;
  if (endpoint.kind == Endpoint::Kind::tcp && endpoint.port == 0) {
    address.length = sizeof address.storage;
    if (::getsockname(fd.get(), address.get(), &address.length) != 0)
      return system_error("getsockname", errno);
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address.storage);
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address.storage);
    local.port = ntohs(address.family() == AF_INET6 ? v6->sin6_port : v4->sin_port);
  }
  return std::unique_ptr<Listener>(
      std::make_unique<SocketListener>(std::move(fd), std::move(local)));
}

}  // namespace starlane::net
