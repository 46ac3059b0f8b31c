#include "fuse/holder/control.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "common/errno.h"
#include "fuse/mount.h"

namespace starlane::fuse {
namespace {

/// In the abstract name space: its name begins with a zero.
socklen_t address_of(const std::string& device_number, sockaddr_un* address) {
  const std::string name = "starlane-holder/" + device_number;
  *address = {};
  address->sun_family = AF_UNIX;
  std::memcpy(address->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

Result<UniqueFd> new_socket() {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd) return system_error("socket", errno);
  return fd;
}

}  // namespace

Result<UniqueFd> listen_for_control(const std::string& device_number) {
  UniqueFd fd = SL_TRY(new_socket());
  sockaddr_un address;
  const socklen_t length = address_of(device_number, &address);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(fd.get(), 4) != 0)
    return system_error("cannot listen for `starlane upgrade`", errno);
  return fd;
}

Result<int> ask_upgrade(const std::string& mountpoint, const std::string& binary) {
  const std::string number = device_number_of(mountpoint);
  if (number.empty())
    return Status(Errc::invalid,
                  mountpoint + " is no Starlane mount; is `starlane mount` running?");
  const UniqueFd fd = SL_TRY(new_socket());
  sockaddr_un address;
  const socklen_t length = address_of(number, &address);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0)
    return Status(Errc::unavailable,
                  "the mount at " + mountpoint +
                      " has no holder (`starlane status` says why): stop it and start it with the "
                      "new binary");
  if (::send(fd.get(), binary.data(), binary.size(), MSG_NOSIGNAL) < 0)
    return system_error("cannot ask the mount's holder", errno);
  char answer[256] = {};
  ssize_t got = 0;
  do got = ::recv(fd.get(), answer, sizeof answer - 1, 0);
  while (got < 0 && errno == EINTR);
  if (got <= 0)
    return Status(Errc::not_permitted,
                  "the mount's holder does not answer: only root and the user who mounted may ask");
  if (std::strncmp(answer, "ok ", 3) != 0) return Status(Errc::io, answer);
  return std::atoi(answer + 3);
}

}  // namespace starlane::fuse
