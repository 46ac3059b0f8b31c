#include "metrics/page_client.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "common/unique_fd.h"

namespace starlane::metrics {
namespace {

constexpr std::size_t kAnswerLimit = 64 << 20;

Status nobody(const std::string& where) {
  return Status(Errc::unavailable, "nobody serves metrics at " + where);
}

void limit(const UniqueFd& fd, Nanoseconds patience) {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(patience).count();
  const timeval time{us / 1'000'000, us % 1'000'000};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

Result<UniqueFd> connect_unix(const std::string& path, const PageWanted& wanted) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return nobody(wanted.where);
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return nobody(wanted.where);
  limit(fd, wanted.patience);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return nobody(wanted.where);
  return fd;
}

Result<UniqueFd> connect_tcp(const PageWanted& wanted) {
  const std::size_t colon = wanted.where.rfind(':');
  if (colon == std::string::npos)
    return Status(Errc::invalid, "metrics are served at HOST:PORT, not " + wanted.where);
  std::string host = wanted.where.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host.c_str(), wanted.where.c_str() + colon + 1, &hints, &found) != 0)
    return nobody(wanted.where);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> freed(found, ::freeaddrinfo);
  UniqueFd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return nobody(wanted.where);
  limit(fd, wanted.patience);
  if (::connect(fd.get(), found->ai_addr, found->ai_addrlen) != 0) return nobody(wanted.where);
  return fd;
}

Result<std::string> receive_all(int fd, const std::string& where) {
  std::string answer;
  char buffer[65536];
  for (;;) {
    const ssize_t got = ::recv(fd, buffer, sizeof buffer, 0);
    if (got == 0) return answer;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 || answer.size() > kAnswerLimit)
      return Status(Errc::unavailable, where + " does not answer");
    answer.append(buffer, static_cast<std::size_t>(got));
  }
}

}  // namespace

Result<std::string> fetch_page(const PageWanted& wanted) {
  const bool local = wanted.where.starts_with("unix:");
  const UniqueFd fd =
      SL_TRY(local ? connect_unix(wanted.where.substr(5), wanted) : connect_tcp(wanted));
  const std::string request = wanted.method + " " + wanted.target +
                              " HTTP/1.1\r\nHost: starlane\r\nConnection: close\r\n\r\n";
  if (::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size()))
    return nobody(wanted.where);
  const std::string answer = SL_TRY(receive_all(fd.get(), wanted.where));
  const std::size_t end = answer.find("\r\n\r\n");
  if (!answer.starts_with("HTTP/1.") || end == std::string::npos)
    return Status(Errc::unavailable, wanted.where + " speaks no HTTP");
  const int status = std::atoi(answer.c_str() + 9);
  std::string body = answer.substr(end + 4);
  if (status == 200) return body;
  while (!body.empty() && body.back() == '\n') body.pop_back();
  return Status(status == 404 ? Errc::not_found : Errc::invalid, body);
}

std::string encoded(const std::string& text) {
  std::string out;
  for (const char c : text) {
    char hex[4];
    std::snprintf(hex, sizeof hex, "%%%02X", static_cast<unsigned char>(c));
    const bool plain =
        std::isalnum(static_cast<unsigned char>(c)) || c == '/' || c == '.' || c == '-' || c == '_';
    out += plain ? std::string(1, c) : std::string(hex);
  }
  return out;
}

}  // namespace starlane::metrics
