// The engine inside the process for one machine: the resolver over a table in a directory. Any
// thread.
#pragma once
#include <memory>
#include <string>

#include "common/bytes.h"
#include "kv/engine.h"
#include "kv/occ/resolver.h"

namespace starlane::kv {

struct RocksdbOptions {
  std::string directory;
  std::uint64_t cache_bytes = 128_MiB;
  std::uint64_t write_buffer_bytes = 96_MiB;
  /// Of the file system: below it commits that delete nothing answer no_space, below an eighth of
  /// it all that write. On a small one 5 % of it, if that is less; the write buffer is at most half
  /// of it, as it must always find room. A disk that is really full would stop the engine, and then
  /// nothing could be freed. 0: do not ask.
  std::uint64_t reserve_bytes = 256_MiB;
  occ::Options resolver{.name = "rocksdb"};
};

/// Makes the directory where there is none. Errors, one sentence each: busy (in use by another
/// process), invalid (it holds something else), corrupt, unsupported (a newer format), io,
/// no_space.
Result<std::unique_ptr<Engine>> open_rocksdb(const RocksdbOptions& options);

}  // namespace starlane::kv
