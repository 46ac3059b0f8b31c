#include "metrics/page_client.h"

#include <httplib.h>
#include <sys/socket.h>

#include "metrics/socket_path.h"

namespace starlane::metrics {
namespace {

constexpr std::size_t kAnswerLimit = 64 << 20;

Result<std::unique_ptr<httplib::Client>> client_of(const std::string& where) {
  if (where.starts_with("unix:")) {
    SL_TRY(fits_socket(where.substr(5)));
    auto client = std::make_unique<httplib::Client>(where.substr(5));
    client->set_address_family(AF_UNIX);
    return client;
  }
  if (where.rfind(':') == std::string::npos)
    return Status(Errc::invalid, "metrics are served at HOST:PORT, not " + where);
  return std::make_unique<httplib::Client>("http://" + where);
}

}  // namespace

Result<std::string> fetch_page(const PageWanted& wanted) {
  const auto client = SL_TRY(client_of(wanted.where));
  client->set_connection_timeout(wanted.patience);
  client->set_read_timeout(wanted.patience);
  client->set_write_timeout(wanted.patience);
  client->set_url_encode(false);
  httplib::Request request;
  request.method = wanted.method;
  request.path = wanted.target;
  request.headers = {{"Host", "starlane"}, {"Connection", "close"}};
  std::string body;
  request.content_receiver = [&](const char* data, std::size_t size, std::uint64_t, std::uint64_t) {
    body.append(data, size);
    return body.size() <= kAnswerLimit;
  };
  const httplib::Result answer = client->send(request);
  if (!answer) {
    const bool connected = answer.error() != httplib::Error::Connection;
    return Status(Errc::unavailable, connected ? wanted.where + " does not answer"
                                               : "nobody serves metrics at " + wanted.where);
  }
  if (answer->status == 200) return body;
  while (!body.empty() && body.back() == '\n') body.pop_back();
  return Status(answer->status == 404 ? Errc::not_found : Errc::invalid, body);
}

std::string encoded(const std::string& text) { return httplib::detail::encode_query_param(text); }

}  // namespace starlane::metrics
