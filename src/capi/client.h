// A connection of the C interface, and what every entry point shares: checks of what the caller
// gave, walks of paths, and the way out for failures. No exception leaves an entry point that runs
// inside `guarded`. Any thread.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "capi/calls.h"
#include "capi/starlane.h"
#include "common/thread_pool.h"
#include "wire/embedded.h"

struct sl_client {
  std::unique_ptr<starlane::wire::Embedded> embedded;
  std::unique_ptr<starlane::ThreadPool> pool;  // serves batches
  std::size_t threads = 0;
  std::unique_ptr<starlane::capi::Calls> calls;
  pid_t pid = 0;
  std::atomic<int> opened{0};  // files, batches, listings, watches; pairs with sl_disconnect
};

namespace starlane::capi {

/// For the calling thread; answers -error.
int fail(int error, std::string text);
/// 0, or the failure by its errno.
int outcome(const Status& status);

template <typename Work>
auto guarded(Work work) noexcept -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM, "no memory");
  } catch (const std::exception& failure) {
    return fail(EIO, std::string("an error of the library, please report it: ") + failure.what());
  }
}

/// Usable in this process, else EINVAL or ECHILD.
Status check(const sl_client* client);
bool in_child(const sl_client& client);
/// ECHILD has no Errc: `fail` for it.
int refuse_child();

/// A node that the Vfs remembers for as long as this lives.
class Remembered {
 public:
  Remembered() = default;
  Remembered(client::Vfs& vfs, client::Node node) : vfs_(&vfs), node_(node) {}
  Remembered(Remembered&& other) noexcept
      : vfs_(std::exchange(other.vfs_, nullptr)), node_(other.node_) {}
  Remembered& operator=(Remembered&& other) noexcept {
    std::swap(vfs_, other.vfs_);
    std::swap(node_, other.node_);
    return *this;
  }
  ~Remembered() {
    if (vfs_ != nullptr && node_ != client::kMountRoot) vfs_->forget(node_, 1);
  }
  const client::Node& node() const { return node_; }

 private:
  client::Vfs* vfs_ = nullptr;
  client::Node node_ = client::kMountRoot;
};

struct Found {
  Remembered node;
  client::Stat stat;
};
/// follow: the last name too, where it is a symbolic link.
Result<Found> walk(sl_client& client, const Calls::Scope& scope, std::string_view path,
                   bool follow = true);
struct Place {
  Found directory;
  std::string name;
};
/// Of a name that need not be there. invalid: the path names no entry of a directory.
Result<Place> place_of(sl_client& client, const Calls::Scope& scope, std::string_view path);

/// invalid: its size is none that this library knows.
Status fill(const client::Stat& stat, sl_stat* out);

/// An entry point over a client: checks it, gives the work a scope, and tells of its failure.
template <typename Work>
int with_client(sl_client* client, Work work) noexcept {
  return guarded([&]() -> int {
    if (client != nullptr && in_child(*client)) return refuse_child();
    const Status usable = check(client);
    if (!usable.ok()) return outcome(usable);
    const Calls::Scope scope(*client->calls);
    const Status status = work(scope);
    return status.ok() ? 0 : outcome(scope.told(status));
  });
}

}  // namespace starlane::capi
