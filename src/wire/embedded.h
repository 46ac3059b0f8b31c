// The file system of a running site for a program that asks by call and not through the kernel:
// sessions, names and bytes as a mount has them, without FUSE and without a node cache. Any thread
// once open; stop from one.
#pragma once
#include <memory>
#include <string>

#include "client/vfs.h"
#include "common/bytes.h"
#include "wire/connection.h"

namespace starlane::wire {

struct EmbeddedOptions {
  std::string purpose;  // shown in the list of sessions
  std::uint64_t block_cache_bytes = 64_MiB;
  std::uint64_t dirty_bytes = 256_MiB;
};

class Embedded {
 public:
  /// Errors: those of Connection::open.
  static Result<std::unique_ptr<Embedded>> open(const Address& address,
                                                const EmbeddedOptions& options);
  virtual ~Embedded() = default;
  /// For volumes and data sets: waits while the server is away.
  virtual MetaService& meta() = 0;
  virtual client::Vfs& vfs() = 0;
  /// Commits what was written; after it no call. The first failure.
  virtual Status stop() = 0;
};

}  // namespace starlane::wire
