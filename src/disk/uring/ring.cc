#include "disk/uring/ring.h"

#include <cerrno>
#include <cstring>

#include "common/errno.h"
#include "common/thread_pool.h"
#include "disk/posix/directory.h"

namespace starlane::disk {
namespace {

std::size_t bytes_left(const DiskOperation& op) {
  std::size_t total = 0;
  for (std::size_t i = 0; i < op.count; ++i) total += op.pieces[i].iov_len;
  return total;
}

/// Drops what was transferred from the front of the operation.
void shrink(DiskOperation& op, std::size_t done) {
  iovec* pieces = op.pieces.data();
  int count = op.count;
  op.offset += done;
  advance(pieces, count, done);
  std::memmove(op.pieces.data(), pieces, static_cast<std::size_t>(count) * sizeof(iovec));
  op.count = static_cast<std::uint8_t>(count);
}

void prepare(io_uring_sqe* sqe, const DiskOperation& op) {
  const int fd = *static_cast<const int*>(op.file);
  switch (op.kind) {
    case DiskOperation::Kind::sync:
      io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
      break;
    case DiskOperation::Kind::read:
      io_uring_prep_readv(sqe, fd, op.pieces.data(), op.count, op.offset);
      break;
    case DiskOperation::Kind::write:
      io_uring_prep_writev(sqe, fd, op.pieces.data(), op.count, op.offset);
      break;
  }
}

const char* name_of_kind(DiskOperation::Kind kind) {
  switch (kind) {
    case DiskOperation::Kind::sync:
      return "cannot sync a file";
    case DiskOperation::Kind::read:
      return "cannot read a file";
    case DiskOperation::Kind::write:
      return "cannot write a file";
  }
  return "";
}

}  // namespace

Result<std::unique_ptr<Ring>> Ring::create(unsigned depth) {
  std::unique_ptr<Ring> ring(new Ring(depth));
  // One more entry than operations: the destructor's.
  if (const int error = io_uring_queue_init(depth + 1, &ring->ring_, 0); error < 0) {
    ring->ring_.ring_fd = -1;
    return Status(Errc::unsupported,
                  "io_uring is not available: " + std::string(std::strerror(-error)));
  }
  ring->thread_ = std::thread([self = ring.get()] { self->run(); });
  return ring;
}

Ring::~Ring() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(m_);
    SL_CHECK(in_flight_ == 0);
    submit(nullptr);
  }
  thread_.join();
  io_uring_queue_exit(&ring_);
}

void Ring::start(DiskOperation& op) {
  MutexLock lock(m_);
  while (in_flight_ == depth_) room_.wait(m_);
  ++in_flight_;
  submit(&op);
}

void Ring::submit(DiskOperation* op) {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  SL_CHECK(sqe != nullptr);  // depth_ bounds them
  if (op == nullptr) {
    io_uring_prep_nop(sqe);
  } else {
    prepare(sqe, *op);
  }
  io_uring_sqe_set_data(sqe, op);
  // The kernel may be short of memory for a moment; the entry stays queued and goes with the next
  // try.
  while (true) {
    const int submitted = io_uring_submit(&ring_);
    if (submitted >= 0) return;
    SL_CHECK(submitted == -EAGAIN || submitted == -EBUSY || submitted == -EINTR);
    std::this_thread::yield();
  }
}

bool Ring::complete(DiskOperation& op, int result, Status& status) {
  if (result == -EINTR || result == -EAGAIN)
    result = 0;
  else if (result < 0)
    status = system_error(name_of_kind(op.kind), -result);
  else if (op.kind == DiskOperation::Kind::sync)
    return true;
  else if (result == 0 && bytes_left(op) != 0)
    status = Status(Errc::io, "a file ends before its record");
  if (!status.ok()) return true;
  shrink(op, static_cast<std::size_t>(result));
  if (op.kind != DiskOperation::Kind::sync && bytes_left(op) == 0) return true;
  submit(&op);
  return false;
}

void Ring::run() {
  name_this_thread("disk");
  while (true) {
    io_uring_cqe* cqe = nullptr;
    const int waited = io_uring_wait_cqe(&ring_, &cqe);
    if (waited == -EINTR || waited == -EAGAIN) continue;
    SL_CHECK(waited == 0);
    auto* op = static_cast<DiskOperation*>(io_uring_cqe_get_data(cqe));
    const int result = cqe->res;
    io_uring_cqe_seen(&ring_, cqe);
    if (op == nullptr) return;
    Status status;
    {
      MutexLock lock(
          m_);  // also orders this after start() for those who cannot see the kernel do it
      if (!complete(*op, result, status)) continue;
      --in_flight_;
      room_.notify_one();
    }
    op->batch->done(status);  // *op may be gone from here on
  }
}

}  // namespace starlane::disk
