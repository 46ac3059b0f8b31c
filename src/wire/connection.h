// A command's way to a running site: metadata and block stubs over its sockets, and, for commands
// that move bytes, a session with a FileIo. Any thread once built.
#pragma once
#include <memory>
#include <string>

#include "client/attachments.h"
#include "client/file_io.h"
#include "proto/block_service.h"
#include "proto/meta_service.h"
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
  virtual ~Connection() = default;

  /// Answered with `unavailable` and the remedy when nobody serves there. Does not open a session.
  static Result<std::unique_ptr<Connection>> open(const Address& address);

  virtual MetaService& meta() = 0;
  /// The server of a target, by its endpoint in the cluster map. Lives as long as the connection.
  virtual Result<BlockService*> blocks(const std::string& endpoint) = 0;
};

/// A connection with a session, for commands that read or write files without a mount.
class FileConnection {
 public:
  virtual ~FileConnection() = default;
  static Result<std::unique_ptr<FileConnection>> open(Connection& connection,
                                                      const std::string& purpose);

  /// Metadata calls that wait while the server is away.
  virtual MetaService& meta() = 0;
  virtual client::FileIo& io() = 0;
  virtual client::Attachments& attachments() = 0;
  virtual SessionId session() = 0;
  virtual Result<BranchId> attach_image(const std::string& name, const std::string& version) = 0;
};

}  // namespace starlane::wire
