#include "capi/client.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <mutex>

#include "common/errno.h"
#include "common/log.h"
#include "wire/roles.h"

namespace starlane::capi {
namespace {

constexpr int kMaxLinks = 40;
constexpr std::uint32_t kMostThreads = 64;

thread_local std::string last_error;

void push_front(std::deque<std::string>& parts, std::string_view path) {
  std::vector<std::string> found;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    if (end > 0) found.emplace_back(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  parts.insert(parts.begin(), found.begin(), found.end());
}

/// Directories from the root down to where a walk is.
class Walk {
 public:
  Walk(sl_client& client, const Calls::Scope& scope)
      : vfs_(client.embedded->vfs()), caller_(scope.caller()) {}

  Result<Found> run(std::string_view path, bool follow) {
    push_front(parts_, path);
    while (!parts_.empty()) {
      const std::string name = std::move(parts_.front());
      parts_.pop_front();
      if (name == ".") continue;
      if (name == "..") {
        if (!trail_.empty()) trail_.pop_back();
        continue;
      }
      SL_TRY(step(name, follow || !parts_.empty()));
    }
    if (!trail_.empty()) return std::move(trail_.back());
    Found root;
    root.stat = SL_TRY(vfs_.get_attributes(caller_, client::kMountRoot, std::nullopt)).stat;
    return root;
  }

 private:
  Status step(const std::string& name, bool follow) {
    const client::Node parent = trail_.empty() ? client::kMountRoot : trail_.back().node.node();
    if (!trail_.empty() && !S_ISDIR(trail_.back().stat.mode))
      return Status(Errc::not_directory, "what precedes " + name + " is no directory");
    const client::EntryReply entry = SL_TRY(vfs_.lookup(caller_, parent, name));
    if (!entry.node.inode) return Status(Errc::not_found, "there is no " + name);
    Found found{Remembered(vfs_, entry.node), entry.attributes.stat};
    if (!follow || !S_ISLNK(found.stat.mode)) {
      trail_.push_back(std::move(found));
      return {};
    }
    if (++links_ > kMaxLinks) return Status(Errc::loop, "too many symbolic links");
    const std::string target = SL_TRY(vfs_.read_link(caller_, found.node.node()));
    if (target.starts_with('/'))
      return Status(Errc::cross_device, name + " is a symbolic link out of the site, to " + target);
    push_front(parts_, target);
    return {};
  }

  client::Vfs& vfs_;
  const client::Caller& caller_;
  std::deque<std::string> parts_;
  std::vector<Found> trail_;
  int links_ = 0;
};

/// Warnings and errors to standard error; the host program's own spdlog, if it has one, is not
/// ours.
void start_log_once() {
  static std::once_flag once;
  std::call_once(once, [] { start_logging({.role = "client", .file = {}, .level = "error"}); });
}

Status connect(const char* directory, const sl_options& options, sl_client** out) {
  start_log_once();
  const wire::Site site = SL_TRY(wire::Site::open(directory));
  wire::EmbeddedOptions embedded;
  embedded.purpose = options.purpose != nullptr ? options.purpose : "C interface";
  if (options.cache_bytes != 0) embedded.block_cache_bytes = options.cache_bytes;
  if (options.dirty_bytes != 0) embedded.dirty_bytes = options.dirty_bytes;
  auto client = std::make_unique<sl_client>();
  client->pid = ::getpid();
  client->threads = options.threads == 0 ? 8 : options.threads;
  client->embedded = SL_TRY(wire::Embedded::open(wire::address_of(site), embedded));
  client->pool = std::make_unique<ThreadPool>(
      ThreadPool::Options{.name = "sl-batch", .threads = client->threads, .queue_limit = 4096});
  client->calls =
      std::make_unique<Calls>(client->embedded->vfs(), Milliseconds(options.patience_ms));
  *out = client.release();
  return {};
}

}  // namespace

int fail(int error, std::string text) {
  last_error = std::move(text);
  return -error;
}

int outcome(const Status& status) {
  if (status.ok()) return 0;
  return fail(errno_of(status.code()), status.text());
}

bool in_child(const sl_client& client) { return client.pid != ::getpid(); }

int refuse_child() {
  return fail(ECHILD, "this client was made before a fork(); call sl_connect in the child");
}

Status check(const sl_client* client) {
  return client != nullptr ? Status() : Status(Errc::invalid, "the client is a null pointer");
}

Result<Found> walk(sl_client& client, const Calls::Scope& scope, std::string_view path,
                   bool follow) {
  if (!path.starts_with('/')) return {Errc::invalid, "a path begins with /, as /volumes/NAME/file"};
  return Walk(client, scope).run(path, follow);
}

Result<Place> place_of(sl_client& client, const Calls::Scope& scope, std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos)
    return {Errc::invalid, "a path begins with /, as /volumes/NAME/file"};
  const std::string_view name = path.substr(slash + 1);
  if (name.empty() || name == "." || name == "..")
    return {Errc::invalid, "the path names no entry of a directory"};
  Place place{SL_TRY(walk(client, scope, path.substr(0, slash + 1))), std::string(name)};
  if (!S_ISDIR(place.directory.stat.mode))
    return {Errc::not_directory, "what precedes " + place.name + " is no directory"};
  return place;
}

Status fill(const client::Stat& stat, sl_stat* out) {
  if (out == nullptr || out->size < sizeof *out)
    return Status(Errc::invalid, "set size of the sl_stat to sizeof(sl_stat)");
  const std::uint32_t size = out->size;
  std::memset(out, 0, size);
  out->size = size;
  out->mode = stat.mode;
  out->ino = stat.ino;
  out->length_bytes = stat.length;
  out->blocks = stat.blocks;
  out->nlink = stat.nlink;
  out->uid = stat.uid;
  out->gid = stat.gid;
  out->mtime_seconds = stat.mtime.seconds;
  out->mtime_nanoseconds = stat.mtime.nanoseconds;
  out->ctime_seconds = stat.ctime.seconds;
  out->ctime_nanoseconds = stat.ctime.nanoseconds;
  return {};
}

}  // namespace starlane::capi

using namespace starlane;
using namespace starlane::capi;

extern "C" {

uint32_t sl_abi(void) { return SL_ABI; }
const char* sl_version(void) { return wire::kVersion; }
const char* sl_last_error(void) { return last_error.c_str(); }

int sl_connect(const char* directory, const sl_options* options, sl_client** client) {
  return guarded([&]() -> int {
    if (directory == nullptr || client == nullptr)
      return fail(EINVAL, "sl_connect needs a directory and a place for the client");
    sl_options wanted{};
    if (options != nullptr) {
      if (options->size < sizeof wanted)
        return fail(EINVAL, "set size of the sl_options to sizeof(sl_options)");
      wanted = *options;
    }
    if (wanted.threads > kMostThreads) return fail(EINVAL, "sl_options.threads is at most 64");
    const Status status = connect(directory, wanted, client);
    if (status.code() == Errc::unavailable) return fail(ENOTCONN, status.text());
    return outcome(status);
  });
}

int sl_disconnect(sl_client* client) {
  return guarded([&]() -> int {
    if (client == nullptr || in_child(*client)) return 0;
    if (const int opened = client->opened.load(); opened > 0)
      return fail(EBUSY, std::to_string(opened) + " files, batches, listings or watches are open");
    const std::unique_ptr<sl_client> owned(client);
    owned->pool.reset();
    const Status stopped = owned->embedded->stop();
    return outcome(stopped);
  });
}

int sl_interrupt(sl_client* client) {
  return guarded([&]() -> int {
    if (client != nullptr && in_child(*client)) return refuse_child();
    const Status usable = check(client);
    if (!usable.ok()) return outcome(usable);
    client->calls->interrupt_all();
    return 0;
  });
}

}  // extern "C"
