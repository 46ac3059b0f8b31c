// A handful of small pages over HTTP/1.1, on unix sockets and TCP: what `/metrics` and the commands
// that look into a running role need, and nothing more. One thread serves all; a slow or hostile
// peer costs a connection of a few, for a few seconds. listen, then start; destroying it stops.
#pragma once
#include <functional>
#include <list>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "common/unique_fd.h"

namespace starlane::metrics {

struct PageRequest {
  std::string method;
  std::string path;                          // "/metrics"
  std::map<std::string, std::string> query;  // decoded
  bool local = false;  // over a unix socket: from somebody who may enter the site's directory
};

struct PageAnswer {
  int status = 200;
  std::string body;
  std::string type = "text/plain; charset=utf-8";
};

class PageServer {
 public:
  /// Called on the server's thread, one request at a time: it answers soon.
  using Handler = std::function<PageAnswer(const PageRequest&)>;
  explicit PageServer(Handler handler) : handler_(std::move(handler)) {}
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  /// A socket that nobody serves any more is replaced. Errors: exists (somebody serves it),
  /// invalid, io.
  Status listen_unix(const std::string& path);
  /// "PORT" (on loopback), "HOST:PORT" or "[IPV6]:PORT"; port 0: the system chooses. Answers where,
  /// as HOST:PORT. Errors: invalid, exists, io: one sentence each.
  Result<std::string> listen_tcp(const std::string& address);
  Status start();

 private:
  struct Listener {
    UniqueFd fd;
    std::string path;  // of a unix socket
  };
  struct Peer {
    UniqueFd fd;
    bool local = false;
    std::string received;
    Nanoseconds until{0};
  };

  void run();
  void accept_from(const Listener& listener);
  bool advance(Peer& peer) const;
  void answer(const Peer& peer) const;

  const Handler handler_;
  std::vector<Listener> listeners_;
  std::list<Peer> peers_;  // the server thread's
  UniqueFd stop_;
  std::thread thread_;
};

}  // namespace starlane::metrics
