// A mount: the Vfs over the metadata service, with sessions, views, caches of names and handles;
// the bytes are FileIo's. Built by wire in the order Sessions, FileIo (which gets the Sessions as
// its Attachments), Incarnations, mount.
#pragma once
#include <functional>
#include <memory>

#include "client/file_io.h"
#include "client/incarnations.h"
#include "client/meters.h"
#include "client/names/name_cache.h"
#include "client/session/sessions.h"
#include "client/vfs.h"
#include "common/bytes.h"

namespace starlane::client {

struct MountOptions {
  NameCache::Options names;
  Nanoseconds catalogue_age =
      std::chrono::milliseconds(500);  // new volumes appear after at most so long
  Nanoseconds missing_age =
      std::chrono::milliseconds(20);    // a name that is not there is asked for again after that
  std::uint32_t directory_page = 1024;  // entries of one call
  std::uint64_t tree_names_bytes = 256_MiB;  // names of versions that the kernel mounts itself
  std::shared_ptr<Meters> meters = std::make_shared<Meters>();

  // For a mount that outlives its daemon (takeover/). What the one before left is taken up in
  // `start`.
  Ledger* ledger = nullptr;          // of the Sessions too; outlives the mount
  int arena_left = -1;               // what the one before had acknowledged and not committed
  std::function<void()> replayed{};  // it is in `io` now, and the old arena not needed any more
};

/// All arguments outlive it. `stop` also closes the sessions. Any thread.
std::unique_ptr<Vfs> make_mount(Sessions& sessions, FileIo& io, Incarnations& incarnations,
                                const MountOptions& options);

}  // namespace starlane::client
