// What the file system tells the kernel unasked: pages and names that are no longer right, pages
// that are to come. Any thread, but never the handler of a READ of the same pages, nor under a lock
// that a request handler may want.
#pragma once
#include <atomic>

#include "client/vfs.h"

namespace starlane::fuse {

class Notifier final : public client::KernelNotifier {
 public:
  explicit Notifier(int device) : device_(device) {}

  void invalidate_inode(client::Node node, std::int64_t offset, std::int64_t length) override;
  void invalidate_entry(client::Node parent, std::string_view name) override;
  /// not_found: the kernel does not know the node (any more).
  Status store(client::Node node, std::uint64_t offset, ByteSpan bytes) override;

  /// What the connection's earlier reader had taken and not answered is to be sent again.
  Status resend();

  std::uint64_t stored_bytes() const { return stored_.load(std::memory_order_relaxed); }

 private:
  const int device_;
  std::atomic<std::uint64_t> stored_{0};  // a figure; pairs with nothing
};

}  // namespace starlane::fuse
