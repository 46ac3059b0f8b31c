// A mount: the Vfs over the metadata service, with sessions, views, caches of names and handles;
// the bytes are FileIo's. Built by wire in the order Sessions, FileIo (which gets the Sessions as
// its Attachments), Incarnations, mount.
#pragma once
#include <memory>

#include "client/file_io.h"
#include "client/incarnations.h"
#include "client/meters.h"
#include "client/names/name_cache.h"
#include "client/session/sessions.h"
#include "client/vfs.h"

namespace starlane::client {

struct MountOptions {
  NameCache::Options names;
  Nanoseconds catalogue_age =
      std::chrono::milliseconds(500);  // new volumes appear after at most so long
  Nanoseconds missing_age =
      std::chrono::milliseconds(20);    // a name that is not there is asked for again after that
  std::uint32_t directory_page = 1024;  // entries of one call
  std::shared_ptr<Meters> meters = std::make_shared<Meters>();
};

/// All arguments outlive it. `stop` also closes the sessions. Any thread.
std::unique_ptr<Vfs> make_mount(Sessions& sessions, FileIo& io, Incarnations& incarnations,
                                const MountOptions& options);

}  // namespace starlane::client
