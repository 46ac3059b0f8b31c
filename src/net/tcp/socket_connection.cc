#include "net/tcp/socket_connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "common/errno.h"
#include "common/passed_fd.h"

namespace starlane::net {
namespace {

constexpr std::size_t kPiecesAtOnce = 16;

/// Moves as many pieces as fit into `out`, the first from `offset` on. Returns how many.
std::size_t gather(std::span<const ByteSpan> pieces, std::size_t offset, std::span<iovec> out) {
  std::size_t count = 0;
  for (const ByteSpan piece : pieces) {
    if (count == out.size()) break;
    const ByteSpan rest = piece.subspan(offset);
    offset = 0;
    if (!rest.empty()) out[count++] = {const_cast<std::byte*>(rest.data()), rest.size()};
  }
  return count;
}

}  // namespace

Status poll_until(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd waiting{fd, events, 0};
    timespec left{}, *until = nullptr;
    if (const Nanoseconds ns = deadline.left(); ns != Nanoseconds::max()) {
      left = {ns.count() / 1'000'000'000, ns.count() % 1'000'000'000};
      until = &left;
    }
    const int ready = ::ppoll(&waiting, 1, until, nullptr);
    if (ready > 0) return {};
    if (ready == 0) return Status(Errc::timeout, "the deadline passed");
    if (errno != EINTR) return system_error("poll", errno);
  }
}

Status SocketConnection::wait_for(short events, Deadline deadline) const {
  const Status status = poll_until(fd_.get(), events, deadline);
  return status.ok() ? status : status.with(peer_);
}

Status SocketConnection::broken(int error_number) const {
  if (error_number == ETIMEDOUT || error_number == ECONNRESET || error_number == EPIPE ||
      error_number == EHOSTUNREACH || error_number == ENETUNREACH || error_number == ECONNABORTED) {
    return Status(Errc::unavailable, "the connection to " + peer_ +
                                         " broke: " + system_error("socket", error_number).text());
  }
  return system_error("socket of " + peer_, error_number);
}

Status SocketConnection::ended() const {
  return Status(Errc::unavailable, "the connection to " + peer_ + " was closed by the other end");
}

Status SocketConnection::send(std::span<const ByteSpan> pieces, Deadline deadline) {
  return send_all(pieces, -1, deadline);
}

Status SocketConnection::send_with(int descriptor, std::span<const ByteSpan> pieces,
                                   Deadline deadline) {
  int domain = 0;
  socklen_t size = sizeof domain;
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain != AF_UNIX)
    return Connection::send_with(descriptor, pieces, deadline);
  return send_all(pieces, descriptor, deadline);
}

Status SocketConnection::send_all(std::span<const ByteSpan> pieces, int passed, Deadline deadline) {
  PassedFd rights;
  std::size_t offset = 0;  // in the first piece
  while (!pieces.empty()) {
    std::array<iovec, kPiecesAtOnce> vectors;
    msghdr message{};
    message.msg_iov = vectors.data();
    message.msg_iovlen = gather(pieces, offset, vectors);
    if (message.msg_iovlen == 0) return {};
    if (passed >= 0) rights.attach(passed, message);
    ssize_t sent = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) return broken(errno);
      SL_TRY(wait_for(POLLOUT, deadline));
      continue;
    }
    passed = -1;
    std::size_t done = static_cast<std::size_t>(sent) + offset;
    while (!pieces.empty() && done >= pieces.front().size()) {
      done -= pieces.front().size();
      pieces = pieces.subspan(1);
    }
    offset = done;
  }
  return {};
}

std::size_t SocketConnection::take_buffered(MutableByteSpan out) {
  const std::size_t taken = std::min(out.size(), buffered());
  if (taken != 0) std::memcpy(out.data(), ahead_.data() + begin_, taken);
  begin_ += taken;
  if (begin_ == end_) begin_ = end_ = 0;
  return taken;
}

Result<std::size_t> SocketConnection::receive_now(MutableByteSpan out) {
  iovec vectors[2] = {{out.data(), out.size()}, {ahead_.data() + end_, ahead_.size() - end_}};
  msghdr message{};
  message.msg_iov = out.empty() ? vectors + 1 : vectors;
  message.msg_iovlen = out.empty() ? 1 : 2;
  PassedFd rights;
  for (;;) {
    rights.make_room(message);
    const ssize_t got = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got == 0) return ended();
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return std::size_t{0};
    if (got < 0) return broken(errno);
    // Whatever comes is taken over, so that a peer cannot fill our table of descriptors.
    if (UniqueFd came = PassedFd::taken_from(message)) descriptor_ = std::move(came);
    const std::size_t direct = std::min(static_cast<std::size_t>(got), out.size());
    end_ += static_cast<std::size_t>(got) - direct;
    return static_cast<std::size_t>(got);
  }
}

Status SocketConnection::receive(MutableByteSpan out, Deadline deadline) {
  out = out.subspan(take_buffered(out));
  while (!out.empty()) {  // ahead_ is empty here
    const std::size_t got = SL_TRY(receive_now(out));
    if (got == 0) SL_TRY(wait_for(POLLIN, deadline));
    out = out.subspan(std::min(got, out.size()));
  }
  return {};
}

Result<bool> SocketConnection::arrived(std::size_t bytes) {
  SL_CHECK(bytes <= ahead_.size());
  while (buffered() < bytes) {
    if (begin_ != 0) {
      std::memmove(ahead_.data(), ahead_.data() + begin_, buffered());
      end_ -= begin_;
      begin_ = 0;
    }
    if (SL_TRY(receive_now({})) == 0) return false;
  }
  return true;
}

void SocketConnection::shutdown() { ::shutdown(fd_.get(), SHUT_RDWR); }

}  // namespace starlane::net
