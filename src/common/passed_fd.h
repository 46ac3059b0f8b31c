// Room for one descriptor on its way through a unix socket, beside the bytes of a message. One
// message at a time, which it outlives.
#pragma once
#include <sys/socket.h>

#include <array>
#include <cstring>

#include "common/unique_fd.h"

namespace starlane {

class PassedFd {
 public:
  /// Before sendmsg: `fd` goes with the first byte, and stays the caller's.
  void attach(int fd, msghdr& message) {
    make_room(message);
    cmsghdr* const control = CMSG_FIRSTHDR(&message);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(control), &fd, sizeof fd);
  }
  /// Before recvmsg: one may come; for more there is no room, and the kernel closes them.
  void make_room(msghdr& message) {
    message.msg_control = bytes_.data();
    message.msg_controllen = CMSG_LEN(sizeof(int));
  }
  /// After recvmsg: the one that came, or none.
  static UniqueFd taken_from(const msghdr& message) {
    const cmsghdr* const control = CMSG_FIRSTHDR(&message);
    if (control == nullptr || control->cmsg_level != SOL_SOCKET ||
        control->cmsg_type != SCM_RIGHTS || control->cmsg_len < CMSG_LEN(sizeof(int)))
      return {};
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(control), sizeof fd);
    return UniqueFd(fd);
  }

 private:
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> bytes_{};
};

}  // namespace starlane
