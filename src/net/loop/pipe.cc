#include "net/loop/pipe.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

namespace starlane::net {
namespace {

constexpr std::size_t kLimit = 1 << 20;

/// Waits a while; timeout when the deadline has passed.
Status wait_a_while(CondVar& changed, Mutex& m, Deadline deadline) SL_REQUIRES(m);
Status wait_a_while(CondVar& changed, Mutex& m, Deadline deadline) {
  const Nanoseconds left = deadline.left();
  if (left == Nanoseconds::zero()) return Status(Errc::timeout, "the deadline passed");
  changed.wait_for(m, std::min<Nanoseconds>(left, std::chrono::seconds(1)));
  return {};
}

}  // namespace

Pipe::Pipe() : ready_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  SL_CHECK(static_cast<bool>(ready_));
}

Status Pipe::push(Chunk chunk, Deadline deadline) {
  MutexLock lock(m_);
  while (!ended_ && bytes_ >= kLimit) SL_TRY(wait_a_while(changed_, m_, deadline));
  if (ended_) return Status(Errc::unavailable, "the loop connection was closed");
  add(std::move(chunk));
  return {};
}

void Pipe::force(Chunk chunk) {
  MutexLock lock(m_);
  if (!ended_) add(std::move(chunk));
}

void Pipe::add(Chunk chunk) {
  if (chunk.bytes.empty()) return;
  bytes_ += chunk.bytes.size();
  chunks_.push_back(std::move(chunk));
  signal();
}

Result<std::optional<Chunk>> Pipe::pop() {
  MutexLock lock(m_);
  if (chunks_.empty()) {
    if (ended_) return Status(Errc::unavailable, "the loop connection was closed by the other end");
    return std::optional<Chunk>();
  }
  Chunk chunk = std::move(chunks_.front());
  chunks_.pop_front();
  bytes_ -= chunk.bytes.size();
  signal();
  return std::optional<Chunk>(std::move(chunk));
}

Status Pipe::wait(Deadline deadline) {
  MutexLock lock(m_);
  while (chunks_.empty() && !ended_) SL_TRY(wait_a_while(changed_, m_, deadline));
  return {};
}

void Pipe::end() {
  MutexLock lock(m_);
  ended_ = true;
  signal();
}

/// Makes the descriptor tell the truth, and wakes who waits on either side.
void Pipe::signal() {
  const bool wanted = ended_ || !chunks_.empty();
  std::uint64_t count = 1;
  if (wanted && !signalled_) (void)!::write(ready_.get(), &count, sizeof count);
  if (!wanted && signalled_) (void)!::read(ready_.get(), &count, sizeof count);
  signalled_ = wanted;
  changed_.notify_all();
}

}  // namespace starlane::net
