// A Connection over a connected stream socket, unix or tcp: gathers what it sends from where it
// lies, receives straight into the caller's memory with a small read-ahead behind it, and sleeps in
// poll. One thread at a time; shutdown: any.
#pragma once
#include <sys/socket.h>

#include <array>

#include "common/unique_fd.h"
#include "net/transport.h"

namespace starlane::net {

class SocketConnection final : public Connection {
 public:
  /// Takes a connected, non-blocking stream socket.
  SocketConnection(UniqueFd fd, std::string peer) : fd_(std::move(fd)), peer_(std::move(peer)) {}

  Status send(std::span<const ByteSpan> pieces, Deadline deadline) override;
  Status send_with(int descriptor, std::span<const ByteSpan> pieces, Deadline deadline) override;
  UniqueFd take_descriptor() override { return std::move(descriptor_); }
  Status receive(MutableByteSpan out, Deadline deadline) override;
  Result<bool> arrived(std::size_t bytes) override;
  std::size_t buffered() const override { return end_ - begin_; }
  int descriptor() const override { return fd_.get(); }
  void shutdown() override;
  const std::string& peer() const override { return peer_; }

 private:
  /// passed: a descriptor that goes with the first byte, or -1.
  Status send_all(std::span<const ByteSpan> pieces, int passed, Deadline deadline);
  Status wait_for(short events, Deadline deadline) const;
  Status broken(int error_number) const;
  Status ended() const;
  std::size_t take_buffered(MutableByteSpan out);
  /// One recvmsg into `out`, then the read-ahead buffer. 0: nothing there now.
  Result<std::size_t> receive_now(MutableByteSpan out);

  UniqueFd fd_;
  std::string peer_;
  UniqueFd descriptor_;              // that came last
  std::size_t begin_ = 0, end_ = 0;  // of what ahead_ holds
  std::array<std::byte, kReadAhead> ahead_;
};

/// Waits until `fd` has one of `events` (of poll) or an error; timeout.
Status poll_until(int fd, short events, Deadline deadline);

}  // namespace starlane::net
