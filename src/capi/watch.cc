// Waiting for a path to change, by looking at its attributes now and then.
#include <algorithm>
#include <cstring>
#include <tuple>

#include "capi/client.h"

using namespace starlane;
using namespace starlane::capi;

struct sl_watch {
  sl_client* client = nullptr;
  std::string path;
  Nanoseconds interval{0};
  Mutex m;
  std::optional<client::Stat> seen SL_GUARDED_BY(m);  // at the last report
};

namespace {

constexpr std::uint32_t kShortest_ms = 10;

auto version_of(const client::Stat& stat) {
  return std::make_tuple(stat.ino, stat.length, stat.mtime, stat.ctime);
}

Result<std::optional<client::Stat>> look(sl_watch& watch, const Calls::Scope& scope) {
  const auto found = walk(*watch.client, scope, watch.path);
  if (found.ok()) return std::optional(found->stat);
  if (found.code() == Errc::not_found || found.code() == Errc::not_directory)
    return std::optional<client::Stat>();
  return found.status();
}

/// Reports it, if it is one.
Result<bool> changed(sl_watch& watch, const std::optional<client::Stat>& now, sl_change* out) {
  MutexLock lock(watch.m);
  if (watch.seen.has_value() == now.has_value() &&
      (!now || version_of(*now) == version_of(*watch.seen)))
    return false;
  const std::uint32_t size = out->size;
  std::memset(out, 0, size);
  out->size = size;
  out->kind = !now ? SL_GONE : watch.seen ? SL_CHANGED : SL_APPEARED;
  out->stat.size = sizeof out->stat;
  if (now) SL_TRY(fill(*now, &out->stat));
  watch.seen = now;
  return true;
}

}  // namespace

extern "C" {

int sl_watch_open(sl_client* client, const char* path, uint32_t interval_ms, sl_watch** watch) {
  return with_client(client, [&](const Calls::Scope& scope) -> Status {
    if (path == nullptr || watch == nullptr || *path != '/')
      return Status(Errc::invalid, "sl_watch_open needs a path that begins with / and a place");
    auto opened = std::make_unique<sl_watch>();
    opened->client = client;
    opened->path = path;
    opened->interval = Milliseconds(std::max(interval_ms, kShortest_ms));
    auto seen = SL_TRY(look(*opened, scope));
    {
      MutexLock lock(opened->m);
      opened->seen = std::move(seen);
    }
    client->opened.fetch_add(1);
    *watch = opened.release();
    return {};
  });
}

int sl_watch_next(sl_watch* watch, int timeout_ms, sl_change* change) {
  return with_client(
      watch != nullptr ? watch->client : nullptr, [&](const Calls::Scope& scope) -> Status {
        if (change == nullptr || change->size < sizeof *change)
          return Status(Errc::invalid, "set size of the sl_change to sizeof(sl_change)");
        const Deadline deadline =
            timeout_ms < 0 ? Deadline::never() : Deadline::after(Milliseconds(timeout_ms));
        for (;;) {
          const auto now = SL_TRY(look(*watch, scope));
          const bool told = SL_TRY(changed(*watch, now, change));
          if (told) return {};
          if (deadline.passed()) return Status(Errc::would_block, watch->path + " has not changed");
          SL_TRY(scope.sleep(std::min(watch->interval, deadline.left())));
        }
      });
}

int sl_watch_close(sl_watch* watch) {
  if (watch == nullptr || in_child(*watch->client)) return 0;
  watch->client->opened.fetch_sub(1);
  delete watch;
  return 0;
}

}  // extern "C"
