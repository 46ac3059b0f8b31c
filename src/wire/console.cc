#include "wire/console.h"

#include <unistd.h>

#include "metrics/exposition.h"
#include "metrics/page_client.h"
#include "metrics/page_server.h"
#include "metrics/process.h"

namespace starlane::wire {
namespace {

using metrics::Exposition;
using metrics::PageAnswer;
using metrics::PageRequest;

void add_server(Exposition& out, const std::string& service, const rpc::Server& server) {
  const metrics::Labels labels{{"service", service}};
  const rpc::Server::Counts counts = server.counts();
  const rpc::Server::Load load = server.load();
  out.counter("starlane_rpc_calls_total", "Calls from other processes", counts.calls, labels);
  out.counter("starlane_rpc_accepted_total", "Connections accepted", counts.accepted, labels);
  out.counter("starlane_rpc_refused_total", "Connections refused: no proof of the key, or too many",
              counts.refused, labels);
  out.counter("starlane_rpc_cut_total", "Connections ended for silence", counts.cut, labels);
  out.gauge("starlane_rpc_connections", "Connections open", static_cast<double>(counts.connections),
            labels);
  out.gauge("starlane_rpc_workers", "Calls that can be served at once",
            static_cast<double>(load.workers), labels);
  out.gauge("starlane_rpc_serving", "Calls being served", static_cast<double>(load.serving),
            labels);
  out.gauge("starlane_rpc_queued", "Calls that have arrived and wait for a worker",
            static_cast<double>(load.queued), labels);
}

void add_ways(Exposition& out, const Network& network) {
  const Network::Ways ways = network.ways();
  for (const auto& [purpose, way] : {std::pair("meta", &ways.meta), std::pair("data", &ways.data)})
    out.histogram(
        "starlane_rpc_way_seconds",
        "Time of calls to other processes less what their server had them: both ways, and "
        "waiting for a worker",
        *way, metrics::Unit::seconds, {{"purpose", purpose}});
}

void add_channels(Exposition& out, const Network& network) {
  const rpc::Channel::Counts counts = network.counts();
  out.counter("starlane_rpc_connects_total", "Connections made to servers", counts.connects);
  out.counter("starlane_rpc_failed_connects_total", "Attempts that reached no server",
              counts.failed_connects);
  out.counter("starlane_rpc_repeats_total", "Calls repeated after a lost connection",
              counts.repeats);
  out.gauge("starlane_rpc_channels", "Connections to servers, idle or in use",
            static_cast<double>(counts.open));
}

class ConsoleImpl final : public Console {
 public:
  explicit ConsoleImpl(Options options)
      : options_(std::move(options)),
        server_([this](const PageRequest& request) { return serve(request); }) {}

  Status begin() {
    if (options_.site != nullptr) SL_TRY(listen_in_site());
    if (!options_.address.empty()) places_.push_back(SL_TRY(server_.listen_tcp(options_.address)));
    if (places_.empty()) return {};
    return server_.start();
  }
  const std::vector<std::string>& places() const override { return places_; }

 private:
  /// A second process of the same name (another mount of this host) has its number in its name.
  Status listen_in_site() {
    std::string endpoint = options_.site->console(options_.name);
    Status status = server_.listen_unix(endpoint.substr(5));
    if (status.code() == Errc::exists) {
      endpoint = options_.site->console(options_.name + "-" + std::to_string(::getpid()));
      status = server_.listen_unix(endpoint.substr(5));
    }
    if (status.ok()) places_.push_back(endpoint);
    return status;
  }

  PageAnswer serve(const PageRequest& request) {
    if (request.path == "/metrics" && request.method != "POST")
      return {200, metrics_page(), "text/plain; version=0.0.4; charset=utf-8"};
    if (request.path == "/") return {200, "starlane " + options_.name + ": see /metrics\n"};
    if (!request.local) return {404, "there is no page " + request.path + " here\n"};
    for (const auto& [name, role] : options_.roles) {
      const Result<std::string> page = role->ask(request.method, request.path, request.query);
      if (page.ok()) return {200, *page, "application/json"};
      if (page.code() != Errc::not_found) return {400, page.status().text() + "\n"};
    }
    return {404, "there is no page " + request.path + " here\n"};
  }

  std::string metrics_page() {
    Exposition out;
    std::string roles;
    for (const auto& [name, role] : options_.roles) roles += (roles.empty() ? "" : ",") + name;
    out.gauge("starlane_info", "What runs here", 1,
              {{"version", kVersion}, {"process", options_.name}, {"roles", roles}});
    for (const auto& [name, role] : options_.roles) role->measure(out);
    for (const auto& [service, server] : options_.servers) add_server(out, service, *server);
    if (options_.network != nullptr) add_channels(out, *options_.network);
    if (options_.network != nullptr) add_ways(out, *options_.network);
    metrics::add_process(out);
    return out.text();
  }

  const Options options_;
  std::vector<std::string> places_;
  metrics::PageServer server_;  // last: its thread uses the others
};

}  // namespace

Result<std::unique_ptr<Console>> Console::start(Options options) {
  auto console = std::make_unique<ConsoleImpl>(std::move(options));
  SL_TRY(console->begin());
  return std::unique_ptr<Console>(std::move(console));
}

std::vector<Shown> consoles_of(const Site& site) {
  std::vector<Shown> found;
  for (const auto& [name, endpoint] : site.consoles()) found.push_back({name, endpoint});
  return found;
}

Result<std::string> ask_console(const std::string& place, const std::string& target,
                                const std::string& method) {
  return metrics::fetch_page({place, method, target});
}

std::string in_query(const std::string& text) { return metrics::encoded(text); }

}  // namespace starlane::wire
