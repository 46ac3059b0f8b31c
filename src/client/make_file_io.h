// Builds the one FileIo of a client over its metadata service and block servers. wire calls it once
// a mount.
#pragma once
#include <memory>

#include "client/attachments.h"
#include "client/blocks/block_client.h"
#include "client/file_io.h"
#include "client/meters.h"
#include "client/session/requests.h"

namespace starlane::client {

class Ledger;

struct FileIoOptions {
  std::uint64_t cache_bytes = 1_GiB;    // block cache; at least 4 MiB
  std::uint64_t arena_bytes = 256_MiB;  // dirty bytes; used when arena_fd is -1
  int arena_fd = -1;  // an empty arena that somebody else keeps too (Arena::create); duplicated
  std::uint64_t read_ahead_bytes = 64_MiB;  // at most, ahead of one stream
  std::size_t fetch_threads = 8;
  std::size_t put_threads = 4;
  std::size_t commit_threads = 2;
  Milliseconds dirty_age{1000};      // older bytes are put and committed in the background
  Milliseconds durable_every{1000};  // then made durable
  std::uint32_t layout = 0;          // of new slices: copies (0: one)
  std::shared_ptr<Meters> meters = std::make_shared<Meters>();
  bool taken_over = false;   // an earlier process may have left commits that are not durable
  Ledger* ledger = nullptr;  // for the next process; null: there is none
};

/// Everything that is passed by reference outlives the FileIo. Its destructor does not flush; call
/// flush_all first.
Result<std::unique_ptr<FileIo>> make_file_io(MetaService& meta, BlockResolver resolve,
                                             Attachments& attachments, Requests& requests,
                                             const FileIoOptions& options);

}  // namespace starlane::client
