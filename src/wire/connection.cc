#include "wire/connection.h"

#include <unistd.h>

#include "client/make_file_io.h"
#include "wire/roles.h"

namespace starlane::wire {
namespace {

constexpr Nanoseconds kFirstAnswer = std::chrono::seconds(3);
constexpr Nanoseconds kSessionPatience = std::chrono::seconds(30);

}  // namespace

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

Address address_of(const Site& site) { return {site.endpoint("meta"), site.key_file().string()}; }

Result<std::unique_ptr<Connection>> Connection::open(const Address& address) {
  auto network = SL_TRY(Network::open(address.key_file));
  MetaService* meta = SL_TRY(network->meta(address.endpoint));
  Call call;
  call.deadline = Deadline::after(kFirstAnswer);
  pb::ClusterMap map;
  const Status answered = meta->cluster_map(call, {}, &map);
  if (answered.code() == Errc::unavailable || answered.code() == Errc::timeout)
    return Status(Errc::unavailable,
                  "nobody serves this site at " + address.endpoint +
                      "; start it with `starlane up`, and look into its log if it runs");
  SL_TRY(answered);
  return std::unique_ptr<Connection>(new Connection(std::move(network), meta));
}

Result<std::unique_ptr<FileConnection>> FileConnection::open(Connection& connection,
                                                             const std::string& purpose) {
  std::unique_ptr<FileConnection> out(new FileConnection);
  client::SessionOptions session;
  session.host = host_name();
  session.purpose = purpose;
  out->sessions_ =
      SL_TRY(client::Sessions::open(connection.meta(), system_clock(), session, kSessionPatience));
  out->meta_ = std::make_unique<client::PatientMeta>(out->sessions_->retry());
  Network& network = connection.network();
  out->io_ = SL_TRY(client::make_file_io(
      connection.meta(),
      [&network](const std::string& endpoint) { return network.blocks(endpoint); }, *out->sessions_,
      out->sessions_->requests(), {}));
  return out;
}

FileConnection::~FileConnection() {
  io_.reset();
  if (sessions_) sessions_->close();
}

Result<BranchId> FileConnection::attach_image(const std::string& name, const std::string& version) {
  client::AttachTarget target;
  target.image_name = name;
  target.image_version = version;
  const auto attached = SL_TRY(sessions_->attach(target, /*unique=*/0));
  return attached->branch;
}

}  // namespace starlane::wire
