// From a decoded request to the Vfs and back: one function an operation. Any thread; blocks as the
// Vfs does.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "client/vfs.h"
#include "fuse/backing.h"
#include "fuse/decode.h"
#include "fuse/reply.h"

namespace starlane::fuse {

class Server {
 public:
  /// What INIT settled.
  struct Options {
    bool passthrough = false;
    bool flags = false;  // the kernel checks who may change flags of files
  };
  /// All outlive the server.
  Server(client::Vfs& vfs, BackingTable& backing, const Options& options)
      : vfs_(vfs), backing_(backing), options_(options) {}

  /// Serves it and answers, but for FORGET and INTERRUPT, which have no answer; the latter is not
  /// for this class.
  void serve(Request& request, Reply& reply);
  /// SETLKW, which is answered when the lock is granted, perhaps long after this has returned;
  /// then `answered` is called. No thread waits in between.
  void serve_waiting(Request& request, std::shared_ptr<Reply> reply,
                     std::function<void()> answered);

 private:
  friend struct Visitor;
  client::Vfs& vfs_;
  BackingTable& backing_;
  const Options options_;
};

}  // namespace starlane::fuse
