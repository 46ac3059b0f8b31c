// A command's way to a running site: metadata and block stubs over its sockets, and, for commands
// that move bytes, a session with a FileIo. Any thread once built.
#pragma once
#include <memory>
#include <string>

#include "client/file_io.h"
#include "client/session/patient_meta.h"
#include "client/session/sessions.h"
#include "proto/block_service.h"
#include "proto/meta_service.h"
#include "wire/network.h"
#include "wire/site.h"

namespace starlane::wire {

/// Where a site's metadata is served and what proves who we are.
struct Address {
  std::string endpoint;  // "unix:/path", "tcp:host:port"
  std::string key_file;
};

/// Of the site in a directory on this machine.
Address address_of(const Site& site);

class Connection {
 public:
  /// Answered with `unavailable` and the remedy when nobody serves there. Does not open a session.
  static Result<std::unique_ptr<Connection>> open(const Address& address);

  MetaService& meta() { return *meta_; }
  Network& network() { return *network_; }

 private:
  Connection(std::unique_ptr<Network> network, MetaService* meta)
      : network_(std::move(network)), meta_(meta) {}

  const std::unique_ptr<Network> network_;
  MetaService* const meta_;
};

/// A connection with a session, for commands that read or write files without a mount.
class FileConnection {
 public:
  /// purpose: shown in the list of sessions. connection outlives it.
  static Result<std::unique_ptr<FileConnection>> open(Connection& connection,
                                                      const std::string& purpose);
  ~FileConnection();

  /// Waits while the server is away.
  MetaService& meta() { return *meta_; }
  client::FileIo& io() { return *io_; }
  client::Sessions& sessions() { return *sessions_; }
  Result<BranchId> attach_image(const std::string& name, const std::string& version);

 private:
  FileConnection() = default;

  std::unique_ptr<client::Sessions> sessions_;
  std::unique_ptr<client::PatientMeta> meta_;
  std::unique_ptr<client::FileIo> io_;
};

}  // namespace starlane::wire
