#include "fuse/holder/message.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace starlane::fuse {

bool send_message(int socket, const HolderMessage& message, int fd, int flags) {
  iovec piece{const_cast<HolderMessage*>(&message), sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  if (fd >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  }
  ssize_t sent = 0;
  do sent = ::sendmsg(socket, &header, flags | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(sizeof message);
}

int receive_message(int socket, HolderMessage* message, int* fd, int flags) {
  *fd = -1;
  iovec piece{message, sizeof *message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  ssize_t got = 0;
  do got = ::recvmsg(socket, &header, flags | MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  if (got == 0 || (got < 0 && errno == ECONNRESET)) return 0;
  if (got < 0) return -1;
  const cmsghdr* rights = CMSG_FIRSTHDR(&header);
  if (rights != nullptr && rights->cmsg_type == SCM_RIGHTS &&
      rights->cmsg_len >= CMSG_LEN(sizeof(int)))
    std::memcpy(fd, CMSG_DATA(rights), sizeof *fd);
  message->text[sizeof message->text - 1] = '\0';
  const bool sound =
      got == static_cast<ssize_t>(sizeof *message) && message->magic == HolderMessage::kMagic;
  if (sound) return 1;
  if (*fd >= 0) ::close(*fd);
  *fd = -1;
  return -1;
}

}  // namespace starlane::fuse
