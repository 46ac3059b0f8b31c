// Directories and the names in them.
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "capi/client.h"

using namespace starlane;
using namespace starlane::capi;

struct sl_listing {
  sl_client* client = nullptr;
  Remembered directory;
  std::uint64_t handle = 0;
  struct Entry {
    std::string name;
    client::Stat stat;
  };
  std::vector<Entry> page;
  std::size_t next = 0;  // of the page
  std::uint64_t cookie = 0;
  bool ended = false;
  Mutex m;  // one page at a time; held over its fetch, which is the listing's only work
};

namespace {

/// Takes one page. What came without attributes is looked up afterwards.
class Page final : public client::DirectoryFiller {
 public:
  static constexpr std::size_t kEntries = 512;
  struct Taken {
    std::string name;
    client::EntryReply entry;
  };

  bool add(std::string_view name, std::uint64_t, std::uint32_t, std::uint64_t next_cookie,
           const client::EntryReply* entry) override {
    if (taken.size() == kEntries) return false;
    cookie = next_cookie;
    any = true;
    if (name != "." && name != "..") taken.push_back({std::string(name), *entry});
    return true;
  }

  std::vector<Taken> taken;
  std::uint64_t cookie = 0;
  bool any = false;
};

Status next_page(sl_listing& listing, const Calls::Scope& scope) {
  client::Vfs& vfs = listing.client->embedded->vfs();
  Page page;
  SL_TRY(vfs.read_directory(scope.caller(), listing.handle, listing.cookie, true, page));
  listing.page.clear();
  listing.next = 0;
  listing.ended = !page.any;
  if (page.any) listing.cookie = page.cookie;
  for (Page::Taken& one : page.taken) {
    if (!one.entry.node.inode) {
      one.entry = SL_TRY(vfs.lookup(scope.caller(), listing.directory.node(), one.name));
      if (!one.entry.node.inode) continue;  // gone meanwhile
    }
    const Remembered node(vfs, one.entry.node);
    listing.page.push_back({std::move(one.name), one.entry.attributes.stat});
  }
  return {};
}

Status next_entry(sl_listing& listing, const Calls::Scope& scope, sl_entry* out, bool* there) {
  MutexLock lock(listing.m);
  while (listing.next == listing.page.size() && !listing.ended) SL_TRY(next_page(listing, scope));
  *there = listing.next < listing.page.size();
  if (!*there) return {};
  const sl_listing::Entry& entry = listing.page[listing.next++];
  out->stat.size = sizeof out->stat;
  SL_TRY(fill(entry.stat, &out->stat));
  const std::size_t n = std::min(entry.name.size(), sizeof out->name - 1);
  std::memcpy(out->name, entry.name.data(), n);
  out->name[n] = '\0';
  return {};
}

Status no_path() { return {Errc::invalid, "the path is a null pointer"}; }

/// A change of one name in its directory.
template <typename Change>
int change_name(sl_client* client, const char* path, Change change) noexcept {
  return with_client(client, [&](const Calls::Scope& scope) -> Status {
    if (path == nullptr) return no_path();
    const Place place = SL_TRY(place_of(*client, scope, path));
    return change(client->embedded->vfs(), scope.caller(), place);
  });
}

}  // namespace

extern "C" {

int sl_stat_path(sl_client* client, const char* path, sl_stat* stat) {
  return with_client(client, [&](const Calls::Scope& scope) -> Status {
    if (path == nullptr) return no_path();
    const Found found = SL_TRY(walk(*client, scope, path));
    return fill(found.stat, stat);
  });
}

int sl_mkdir(sl_client* client, const char* path, uint32_t mode) {
  return change_name(
      client, path, [&](client::Vfs& vfs, const client::Caller& caller, const Place& place) {
        const auto made =
            vfs.make_directory(caller, place.directory.node.node(), place.name, mode & 07777);
        if (made.ok()) const Remembered node(vfs, made->node);
        return made.status();
      });
}

int sl_rmdir(sl_client* client, const char* path) {
  return change_name(client, path,
                     [&](client::Vfs& vfs, const client::Caller& caller, const Place& place) {
                       return vfs.remove_directory(caller, place.directory.node.node(), place.name);
                     });
}

int sl_unlink(sl_client* client, const char* path) {
  return change_name(client, path,
                     [&](client::Vfs& vfs, const client::Caller& caller, const Place& place) {
                       return vfs.unlink(caller, place.directory.node.node(), place.name);
                     });
}

int sl_rename(sl_client* client, const char* from, const char* to) {
  return with_client(client, [&](const Calls::Scope& scope) -> Status {
    if (from == nullptr || to == nullptr) return no_path();
    const Place source = SL_TRY(place_of(*client, scope, from));
    const Place target = SL_TRY(place_of(*client, scope, to));
    if (source.directory.node.node().slot != target.directory.node.node().slot)
      return Status(Errc::cross_device, "names are moved inside one volume only");
    return client->embedded->vfs().rename(scope.caller(), source.directory.node.node(), source.name,
                                          target.directory.node.node(), target.name, /*flags=*/0);
  });
}

int sl_fsync_directory(sl_client* client, const char* path) {
  return with_client(client, [&](const Calls::Scope& scope) -> Status {
    if (path == nullptr) return no_path();
    const Found found = SL_TRY(walk(*client, scope, path));
    if (!S_ISDIR(found.stat.mode))
      return Status(Errc::not_directory, std::string(path) + " is no directory");
    client::Vfs& vfs = client->embedded->vfs();
    const std::uint64_t handle = SL_TRY(vfs.open_directory(scope.caller(), found.node.node()));
    Status synced = vfs.fsync_directory(scope.caller(), handle);
    vfs.release_directory(handle);
    return synced;
  });
}

int sl_listing_open(sl_client* client, const char* path, sl_listing** listing) {
  return with_client(client, [&](const Calls::Scope& scope) -> Status {
    if (path == nullptr || listing == nullptr)
      return Status(Errc::invalid, "sl_listing_open needs a path and a place for the listing");
    Found found = SL_TRY(walk(*client, scope, path));
    if (!S_ISDIR(found.stat.mode))
      return Status(Errc::not_directory, std::string(path) + " is no directory");
    auto opened = std::make_unique<sl_listing>();
    opened->client = client;
    opened->handle =
        SL_TRY(client->embedded->vfs().open_directory(scope.caller(), found.node.node()));
    opened->directory = std::move(found.node);
    client->opened.fetch_add(1);
    *listing = opened.release();
    return {};
  });
}

int sl_listing_next(sl_listing* listing, sl_entry* entry) {
  bool there = false;
  const int status = with_client(
      listing != nullptr ? listing->client : nullptr, [&](const Calls::Scope& scope) -> Status {
        if (entry == nullptr || entry->size < sizeof *entry)
          return Status(Errc::invalid, "set size of the sl_entry to sizeof(sl_entry)");
        return next_entry(*listing, scope, entry, &there);
      });
  return status < 0 ? status : static_cast<int>(there);
}

int sl_listing_close(sl_listing* listing) {
  if (listing == nullptr || in_child(*listing->client)) return 0;
  sl_client* client = listing->client;
  const int closed = with_client(client, [&](const Calls::Scope&) -> Status {
    const std::unique_ptr<sl_listing> owned(listing);
    client->embedded->vfs().release_directory(owned->handle);
    return {};
  });
  client->opened.fetch_sub(1);
  return closed;
}

}  // extern "C"
