// From a decoded request to the Vfs and back: one function an operation. Any thread; blocks as the
// Vfs does.
#pragma once
#include <cstdint>

#include "client/vfs.h"
#include "fuse/backing.h"
#include "fuse/decode.h"
#include "fuse/reply.h"

namespace starlane::fuse {

class Server {
 public:
  /// passthrough: what INIT settled. All outlive the server.
  Server(client::Vfs& vfs, BackingTable& backing, bool passthrough)
      : vfs_(vfs), backing_(backing), passthrough_(passthrough) {}

  /// Serves it and answers, but for FORGET and INTERRUPT, which have no answer; the latter is not
  /// for this class.
  void serve(Request& request, Reply& reply);

 private:
  friend struct Visitor;
  client::Vfs& vfs_;
  BackingTable& backing_;
  const bool passthrough_;
};

}  // namespace starlane::fuse
