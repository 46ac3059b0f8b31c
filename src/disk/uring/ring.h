// The event loop of a device: takes caller-owned operations from any thread, has at most `depth` of
// them in the kernel, and completes each with a Status on its own thread, which sleeps when nothing
// is in flight.
#pragma once
#include <liburing.h>

#include <memory>
#include <thread>

#include "common/mutex.h"
#include "disk/disk.h"

namespace starlane::disk {

/// Any thread. No operation may be in flight at destruction.
class Ring {
 public:
  static Result<std::unique_ptr<Ring>> create(unsigned depth);
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  /// Starts `op` on descriptor `fd`, which op.file points to. Blocks while `depth` operations are
  /// in flight.
  void start(DiskOperation& op) SL_EXCLUDES(m_);

 private:
  explicit Ring(unsigned depth) : depth_(depth) {}
  void run();
  void submit(DiskOperation* op) SL_REQUIRES(m_);
  /// True when the operation is over, with `status` set; false when the rest of it was submitted
  /// again.
  bool complete(DiskOperation& op, int result, Status& status) SL_REQUIRES(m_);

  const unsigned depth_;
  io_uring ring_{};
  Mutex m_;  // the submission queue
  CondVar room_;
  unsigned in_flight_ SL_GUARDED_BY(m_) = 0;
  std::thread thread_;
};

}  // namespace starlane::disk
