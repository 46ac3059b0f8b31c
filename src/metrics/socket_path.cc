#include "metrics/socket_path.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>

#include "common/unique_fd.h"

namespace starlane::metrics {

Status fits_socket(const std::string& path) {
  if (path.size() < sizeof sockaddr_un{}.sun_path) return {};
  return Status(Errc::invalid, path + " is too long for a socket");
}

bool somebody_serves(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return probe &&
         ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

}  // namespace starlane::metrics
