#include "fuse/holder/message.h"

#include <sys/socket.h>

#include <cerrno>

#include "common/passed_fd.h"

namespace starlane::fuse {

bool send_message(int socket, const HolderMessage& message, int fd, int flags) {
  iovec piece{const_cast<HolderMessage*>(&message), sizeof message};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  PassedFd rights;
  if (fd >= 0) rights.attach(fd, header);
  ssize_t sent = 0;
  do sent = ::sendmsg(socket, &header, flags | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(sizeof message);
}

int receive_message(int socket, HolderMessage* message, int* fd, int flags) {
  *fd = -1;
  iovec piece{message, sizeof *message};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  PassedFd rights;
  rights.make_room(header);
  ssize_t got = 0;
  do got = ::recvmsg(socket, &header, flags | MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  if (got == 0 || (got < 0 && errno == ECONNRESET)) return 0;
  if (got < 0) return -1;
  UniqueFd came = PassedFd::taken_from(header);
  message->text[sizeof message->text - 1] = '\0';
  const bool whole = (header.msg_flags & MSG_TRUNC) == 0;
  const bool sound = whole && got == static_cast<ssize_t>(sizeof *message) &&
                     message->magic == HolderMessage::kMagic;
  if (!sound) return -1;
  *fd = came.release();
  return 1;
}

}  // namespace starlane::fuse
