#include "metrics/page_server.h"

#include <httplib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <thread>

#include "common/errno.h"
#include "common/thread_pool.h"
#include "metrics/socket_path.h"

namespace starlane::metrics {
namespace {

constexpr std::time_t kPatienceSeconds = 1;  // with a peer that sends or takes nothing
constexpr std::size_t kPeers = 8, kWaiting = 64;

/// Where all are busy, whoever accepts waits, and further peers wait in the kernel's short queue.
class Workers final : public httplib::TaskQueue {
 public:
  void enqueue(std::function<void()> work) override { pool_->submit(std::move(work)); }
  void shutdown() override { pool_.reset(); }

 private:
  std::unique_ptr<ThreadPool> pool_ =
      std::make_unique<ThreadPool>(ThreadPool::Options{"pages", kPeers, kWaiting});
};

/// Not the library's own choice, SO_REUSEPORT: two servers would share a port unawares.
void options_of_socket(int socket) {
  const int on = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
}

struct HostPort {
  std::string host;
  int port = 0;
};
Result<HostPort> parse_address(const std::string& text) {
  std::string host = "127.0.0.1", number = text;
  if (const std::size_t colon = text.rfind(':'); colon != std::string::npos) {
    host = text.substr(0, colon);
    number = text.substr(colon + 1);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']')
      host = host.substr(1, host.size() - 2);
  }
  unsigned port = 0;
  const char* end = number.data() + number.size();
  const auto parsed = std::from_chars(number.data(), end, port);
  if (host.empty() || parsed.ec != std::errc() || parsed.ptr != end || port > 65535)
    return Status(Errc::invalid, "metrics are served at PORT or HOST:PORT, not " + text);
  return HostPort{host, static_cast<int>(port)};
}

PageRequest request_of(const httplib::Request& request, bool local) {
  PageRequest out{request.method, request.path, {}, local};
  for (const auto& [key, value] : request.params) out.query[key] = value;
  return out;
}

}  // namespace

struct PageServer::Listener {
  httplib::Server server;
  std::string path;  // of a unix socket
  std::thread thread;

  ~Listener() {
    server.stop();
    if (thread.joinable()) thread.join();
    if (!path.empty()) ::unlink(path.c_str());
  }
};

PageServer::PageServer(Handler handler) : handler_(std::move(handler)) {}

PageServer::~PageServer() = default;

PageAnswer PageServer::ask(const PageRequest& request) {
  MutexLock lock(m_);
  return handler_(request);
}

PageServer::Listener& PageServer::add_listener(bool local) {
  auto& listener = *listeners_.emplace_back(std::make_unique<Listener>());
  httplib::Server& server = listener.server;
  server.new_task_queue = [] { return new Workers; };
  server.set_socket_options(options_of_socket);
  server.set_keep_alive_max_count(1);
  server.set_keep_alive_timeout(kPatienceSeconds);
  server.set_read_timeout(kPatienceSeconds);
  server.set_write_timeout(kPatienceSeconds);
  server.set_payload_max_length(8192);
  const auto serve = [this, local](const httplib::Request& request, httplib::Response& response) {
    const PageAnswer page = ask(request_of(request, local));
    response.status = page.status;
    response.set_content(page.body, page.type);
  };
  server.Get(".*", serve).Post(".*", serve);
  return listener;
}

Status PageServer::listen_unix(const std::string& path) {
  SL_TRY(fits_socket(path));
  if (somebody_serves(path)) return Status(Errc::exists, path + " is served by another process");
  ::unlink(path.c_str());
  Listener& listener = add_listener(true);
  listener.server.set_address_family(AF_UNIX);
  if (!listener.server.bind_to_port(path, 1) || ::chmod(path.c_str(), 0600) != 0)
    return system_error("cannot listen at " + path, errno);
  listener.path = path;
  return {};
}

Result<std::string> PageServer::listen_tcp(const std::string& address) {
  const HostPort where = SL_TRY(parse_address(address));
  httplib::Server& server = add_listener(false).server;
  errno = 0;
  int port = where.port;
  if (port == 0)
    port = server.bind_to_any_port(where.host);
  else if (!server.bind_to_port(where.host, port))
    port = -1;
  if (port < 0) {
    listeners_.pop_back();
    return errno == 0
               ? Status(Errc::invalid, "there is no host " + where.host + " to serve metrics at")
               : system_error("cannot serve metrics at " + address, errno);
  }
  const bool six = where.host.find(':') != std::string::npos;
  return (six ? "[" + where.host + "]" : where.host) + ":" + std::to_string(port);
}

Status PageServer::start() {
  for (const auto& listener : listeners_) {
    listener->thread = std::thread([&server = listener->server] {
      name_this_thread("pages");
      server.listen_after_bind();
    });
    while (!listener->server.is_running()) std::this_thread::yield();  // stop() waits for nothing
  }
  return {};
}

}  // namespace starlane::metrics
