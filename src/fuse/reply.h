// One answer to one request, written to /dev/fuse from the pieces where they lie. One thread at a
// time.
#pragma once
#include <sys/uio.h>

#include <cerrno>
#include <cstdint>
#include <span>
#include <string_view>

#include "client/vfs.h"
#include "common/bytes.h"
#include "common/status.h"
#include "fuse/protocol.h"

namespace starlane::fuse {

/// The errno that the kernel gets for a failure of the Vfs. ENOSYS never: it would end the
/// operation for the whole mount.
int errno_for_kernel(Errc code);

fuse_attr attributes_for_kernel(const client::Stat& stat);
fuse_attr_out attributes_answer(const client::AttributesReply& reply);
fuse_entry_out entry_answer(const client::EntryReply& reply);

class Reply {
 public:
  Reply(int device, std::uint64_t unique) : device_(device), unique_(unique) {}
  Reply(const Reply&) = delete;
  Reply& operator=(const Reply&) = delete;

  // Each answers once and says whether the kernel took it; false: nobody waits for it any more.
  bool ok() { return send(0, {}); }
  bool error(int error_number) { return send(error_number, {}); }
  bool status(const Status& status) { return send(errno_for_kernel(status.code()), {}); }
  bool bytes(ByteSpan bytes);
  bool text(std::string_view text) { return bytes(bytes_of(text)); }
  bool pieces(std::span<const client::Piece> pieces);
  template <typename T>
  bool plain(const T& value) {
    return bytes(std::as_bytes(std::span(&value, 1)));
  }
  bool answered() const { return answered_; }
  /// errno of the answer, also of one that says "no such name" without being an error; 0: done.
  int outcome() const { return outcome_; }
  void note_absence() { outcome_ = ENOENT; }
  std::size_t answered_bytes() const { return answered_bytes_; }  // after its header

 private:
  bool send(int error_number, std::span<const iovec> body);

  const int device_;
  const std::uint64_t unique_;
  bool answered_ = false;
  int outcome_ = 0;
  std::size_t answered_bytes_ = 0;
};

}  // namespace starlane::fuse
