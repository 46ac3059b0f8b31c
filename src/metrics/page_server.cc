#include "metrics/page_server.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "common/errno.h"
#include "common/thread_pool.h"

namespace starlane::metrics {
namespace {

constexpr std::size_t kRequestLimit = 8192;
constexpr std::size_t kPeers = 32;
constexpr Nanoseconds kPatience = std::chrono::seconds(5);

Result<sockaddr_un> unix_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return Status(Errc::invalid, path + " is too long for a socket");
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

bool somebody_serves(const sockaddr_un& address) {
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return probe &&
         ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

struct HostPort {
  std::string host, port;
};
Result<HostPort> parse_address(const std::string& text) {
  HostPort out{"127.0.0.1", text};
  if (const std::size_t colon = text.rfind(':'); colon != std::string::npos) {
    out = {text.substr(0, colon), text.substr(colon + 1)};
    if (out.host.size() > 2 && out.host.front() == '[' && out.host.back() == ']')
      out.host = out.host.substr(1, out.host.size() - 2);
  }
  unsigned port = 0;
  const char* end = out.port.data() + out.port.size();
  const auto parsed = std::from_chars(out.port.data(), end, port);
  if (out.host.empty() || parsed.ec != std::errc() || parsed.ptr != end || port > 65535)
    return Status(Errc::invalid, "metrics are served at PORT or HOST:PORT, not " + text);
  return out;
}

std::string name_of(const sockaddr_storage& address, socklen_t length) {
  char host[NI_MAXHOST] = {}, port[NI_MAXSERV] = {};
  ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host, sizeof host, port,
                sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
  const std::string shown =
      std::strchr(host, ':') != nullptr ? "[" + std::string(host) + "]" : host;
  return shown + ":" + port;
}

int hex_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool whole = text[i] == '%' && i + 2 < text.size();
    const int high = whole ? hex_of(text[i + 1]) : -1, low = whole ? hex_of(text[i + 2]) : -1;
    if (high >= 0 && low >= 0) {
      out += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

/// The first line, "GET /page?key=value HTTP/1.1"; false: it is no request.
bool parse(std::string_view line, PageRequest& request) {
  const std::size_t first = line.find(' '), second = line.find(' ', first + 1);
  if (first == std::string_view::npos || second == std::string_view::npos) return false;
  request.method = line.substr(0, first);
  std::string_view target = line.substr(first + 1, second - first - 1);
  const std::size_t mark = target.find('?');
  request.path = decoded(target.substr(0, mark));
  std::string_view rest = mark == std::string_view::npos ? "" : target.substr(mark + 1);
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('&'), rest.size());
    const std::string_view pair = rest.substr(0, end);
    const std::size_t equals = std::min(pair.find('='), pair.size());
    request.query[decoded(pair.substr(0, equals))] =
        decoded(pair.substr(std::min(equals + 1, pair.size())));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return !request.path.empty() && request.path[0] == '/';
}

/// A peer that takes it too slowly gets no more of it.
void send_all(int fd, std::string_view text) {
  const Deadline until = Deadline::after(kPatience);
  while (!text.empty() && !until.passed()) {
    const ssize_t sent = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
}

}  // namespace

PageServer::~PageServer() {
  if (thread_.joinable()) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto n = ::write(stop_.get(), &one, sizeof one);
    thread_.join();
  }
  for (const Listener& listener : listeners_)
    if (!listener.path.empty()) ::unlink(listener.path.c_str());
}

Status PageServer::listen_unix(const std::string& path) {
  const sockaddr_un address = SL_TRY(unix_address(path));
  if (somebody_serves(address)) return Status(Errc::exists, path + " is served by another process");
  ::unlink(path.c_str());
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::chmod(path.c_str(), 0600) != 0 || ::listen(fd.get(), 16) != 0)
    return system_error("cannot listen at " + path, errno);
  listeners_.push_back({std::move(fd), path});
  return {};
}

Result<std::string> PageServer::listen_tcp(const std::string& address) {
  const HostPort where = SL_TRY(parse_address(address));
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  if (::getaddrinfo(where.host.c_str(), where.port.c_str(), &hints, &found) != 0)
    return Status(Errc::invalid, "there is no host " + where.host + " to serve metrics at");
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> freed(found, ::freeaddrinfo);
  UniqueFd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (!fd) return system_error("cannot serve metrics at " + address, errno);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0 || ::listen(fd.get(), 16) != 0)
    return system_error("cannot serve metrics at " + address, errno);
  sockaddr_storage local{};
  socklen_t length = sizeof local;
  ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&local), &length);
  listeners_.push_back({std::move(fd), {}});
  return name_of(local, length);
}

Status PageServer::start() {
  stop_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_) return system_error("cannot serve metrics", errno);
  thread_ = std::thread([this] { run(); });
  return {};
}

void PageServer::run() {
  name_this_thread("pages");
  for (;;) {
    std::vector<pollfd> watched{{stop_.get(), POLLIN, 0}};
    for (const Listener& listener : listeners_) watched.push_back({listener.fd.get(), POLLIN, 0});
    for (const Peer& peer : peers_) watched.push_back({peer.fd.get(), POLLIN, 0});
    if (::poll(watched.data(), watched.size(), peers_.empty() ? -1 : 1000) < 0 && errno != EINTR)
      return;
    if (watched[0].revents != 0) return;
    const Nanoseconds now = system_clock().boot();
    std::size_t at = 1 + listeners_.size();
    for (auto peer = peers_.begin(); peer != peers_.end(); ++at) {
      const bool done = (watched[at].revents != 0 && !advance(*peer)) || now > peer->until;
      peer = done ? peers_.erase(peer) : std::next(peer);
    }
    for (std::size_t i = 0; i < listeners_.size(); ++i)
      if (watched[1 + i].revents != 0) accept_from(listeners_[i]);
  }
}

void PageServer::accept_from(const Listener& listener) {
  UniqueFd fd(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd) return;
  if (peers_.size() >= kPeers) peers_.pop_front();  // the oldest has had its time
  peers_.push_back({std::move(fd), !listener.path.empty(), {}, system_clock().boot() + kPatience});
}

/// Takes what has arrived. False: the peer was answered, or is gone.
bool PageServer::advance(Peer& peer) const {
  char buffer[4096];
  const ssize_t got = ::recv(peer.fd.get(), buffer, sizeof buffer, 0);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  peer.received.append(buffer, static_cast<std::size_t>(got));
  const bool whole = peer.received.find("\r\n\r\n") != std::string::npos;
  if (!whole && peer.received.size() < kRequestLimit) return true;
  answer(peer);
  return false;
}

void PageServer::answer(const Peer& peer) const {
  PageRequest request;
  request.local = peer.local;
  PageAnswer page{400, "not a request\n"};
  if (parse(std::string_view(peer.received).substr(0, peer.received.find("\r\n")), request))
    page = handler_(request);
  // What is sent now may take as long as the request might have.
  const timeval patience{2, 0};
  ::setsockopt(peer.fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  const int flags = ::fcntl(peer.fd.get(), F_GETFL);
  ::fcntl(peer.fd.get(), F_SETFL, flags & ~O_NONBLOCK);
  send_all(peer.fd.get(),
           "HTTP/1.1 " + std::to_string(page.status) + (page.status == 200 ? " OK" : " Refused") +
               "\r\nContent-Type: " + page.type +
               "\r\nContent-Length: " + std::to_string(page.body.size()) +
               "\r\nConnection: close\r\n\r\n" + (request.method == "HEAD" ? "" : page.body));
  ::shutdown(peer.fd.get(), SHUT_WR);
}

}  // namespace starlane::metrics
