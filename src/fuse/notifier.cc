#include "fuse/notifier.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/errno.h"
#include "common/log.h"
#include "fuse/decode.h"
#include "fuse/protocol.h"

namespace starlane::fuse {
namespace {

// A notification is an answer to request 0 whose error is its code.
template <typename Body>
int notify(int device, int code, const Body& body, ByteSpan tail, std::size_t zeros) {
  static constexpr char kZero = 0;
  fuse_out_header header{};
  header.len = static_cast<std::uint32_t>(sizeof header + sizeof body + tail.size() + zeros);
  header.error = code;
  const iovec pieces[] = {{&header, sizeof header},
                          {const_cast<Body*>(&body), sizeof body},
                          {const_cast<std::byte*>(tail.data()), tail.size()},
                          {const_cast<char*>(&kZero), zeros}};
  return ::writev(device, pieces, zeros > 0 ? 4 : tail.empty() ? 2 : 3) < 0 ? errno : 0;
}

void log_unless_gone(const char* what, int failure) {
  if (failure == 0 || failure == ENOENT || failure == ENODEV || failure == ECONNABORTED ||
      failure == ENOTCONN)
    return;
  SL_LOG(warn, "event=notify_failed what={} error=\"{}\"", what, std::strerror(failure));
}

}  // namespace

void Notifier::invalidate_inode(client::Node node, std::int64_t offset, std::int64_t length) {
  const fuse_notify_inval_inode_out body{node.pack(), offset, length};
  log_unless_gone("inode", notify(device_, FUSE_NOTIFY_INVAL_INODE, body, {}, 0));
}

void Notifier::invalidate_entry(client::Node parent, std::string_view name) {
  if (name.size() > kMaxName) return;
  fuse_notify_inval_entry_out body{};
  body.parent = parent.pack();
  body.namelen = static_cast<std::uint32_t>(name.size());
  log_unless_gone("entry", notify(device_, FUSE_NOTIFY_INVAL_ENTRY, body, bytes_of(name), 1));
}

Status Notifier::resend() {
  fuse_out_header header{};
  header.len = sizeof header;
  header.error = kNotifyResend;
  if (::write(device_, &header, sizeof header) == ssize_t{sizeof header}) return {};
  return system_error("the kernel does not send again what was not answered", errno);
}

Status Notifier::store(client::Node node, std::uint64_t offset, ByteSpan bytes) {
  fuse_notify_store_out body{};
  body.nodeid = node.pack();
  body.offset = offset;
  body.size = static_cast<std::uint32_t>(bytes.size());
  const int failure = notify(device_, FUSE_NOTIFY_STORE, body, bytes, 0);
  if (failure != 0) return system_error("cannot push pages to the kernel", failure);
  stored_.fetch_add(bytes.size(), std::memory_order_relaxed);
  return {};
}

}  // namespace starlane::fuse
