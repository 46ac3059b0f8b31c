// A handful of small pages over HTTP, on unix sockets and TCP: `/metrics`, and what the commands
// that look into a running role ask. listen, then start; destroying it stops.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/mutex.h"
#include "common/status.h"

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
  /// Called for one request at a time: it answers soon.
  using Handler = std::function<PageAnswer(const PageRequest&)>;
  explicit PageServer(Handler handler);
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
  struct Listener;
  Listener& add_listener(bool local);
  PageAnswer ask(const PageRequest& request) SL_EXCLUDES(m_);

  Mutex m_;  // held while the handler runs
  const Handler handler_ SL_GUARDED_BY(m_);
  std::vector<std::unique_ptr<Listener>> listeners_;
};

}  // namespace starlane::metrics
