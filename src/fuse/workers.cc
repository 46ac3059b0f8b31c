#include "fuse/workers.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "common/log.h"
#include "common/thread_pool.h"
#include "fuse/protocol.h"

namespace starlane::fuse {
namespace {

constexpr std::size_t kPage = 4096;
// So placed in the buffer that the data of a WRITE start on a page.
constexpr std::size_t kLead = kPage - sizeof(InHeader) - sizeof(fuse_write_in);

int wake_signal() { return SIGRTMIN + 7; }

void install_wake_signal() {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  ::sigaction(wake_signal(), &action, nullptr);  // without SA_RESTART: read() ends with EINTR
}

// A worker takes no signals but the one that wakes it, so that the process's own go to the thread
// that waits for them.
void mask_signals() {
  sigset_t all;
  sigfillset(&all);
  sigdelset(&all, wake_signal());
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&all, fault);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

}  // namespace

class Workers::Buffer {
 public:
  Buffer(std::size_t request_bytes, bool populated)
      : bytes_(round_up(kLead + request_bytes, kPage) + kPage) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (populated ? MAP_POPULATE : 0);
    void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory != MAP_FAILED) memory_ = static_cast<std::byte*>(memory);
  }
  ~Buffer() {
    if (memory_ != nullptr) ::munmap(memory_, bytes_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  bool valid() const { return memory_ != nullptr; }
  MutableByteSpan room() { return {memory_ + kLead, bytes_ - kLead}; }

 private:
  const std::size_t bytes_;
  std::byte* memory_ = nullptr;
};

Workers::Workers(const Options& options, Handlers handlers)
    : options_(options), handlers_(std::move(handlers)) {}

Workers::~Workers() { join(); }

void Workers::start() {
  install_wake_signal();
  MutexLock lock(m_);
  spawn();
}

// Counts as a reader from now on, so that no second one is made for the same need.
void Workers::spawn() {
  for (std::thread& thread : finished_) thread.join();
  finished_.clear();
  const auto self = running_.emplace(running_.end());
  try {
    *self = std::thread([this, self] { run(self); });
  } catch (const std::system_error& failure) {
    running_.erase(self);
    SL_LOG(warn, "event=fuse_thread_refused threads={} error=\"{}\"", running_.size(),
           failure.what());
    return;
  }
  ++readers_;
  if (running_.size() > most_) most_ = running_.size();
}

void Workers::run(ThreadList::iterator self) {
  name_this_thread("fuse");
  mask_signals();
  bool populated = false;
  {
    MutexLock lock(m_);
    populated = running_.size() <= options_.populated_threads;
  }
  Buffer buffer(options_.max_request_bytes, populated);
  MutexLock lock(m_);
  --readers_;  // counted by spawn; next_request counts again
  if (buffer.valid()) loop(buffer);
  finished_.splice(finished_.end(), running_, self);
  changed_.notify_all();
}

void Workers::loop(Buffer& buffer) {
  for (;;) {
    if (serve_queued()) continue;
    if (ended_ || readers_ >= options_.keep_idle) return;
    const ByteSpan request = next_request(buffer);
    if (request.empty()) continue;
    if (readers_ == 0 && running_.size() < options_.max_threads) spawn();
    if (readers_ == 0 && leave_to_others(request)) continue;
    m_.unlock();
    handlers_.serve(request);
    m_.lock();
  }
}

// The last that can read does not: it would leave nobody to see an INTERRUPT.
bool Workers::serve_queued() {
  const bool needed =
      readers_ == 0 && running_.size() >= options_.max_threads && running_.size() > 1;
  if (queue_.empty() || needed) return false;
  const Waiting waiting = std::move(queue_.front());
  queue_.pop_front();
  queued_bytes_ -= waiting.request.size();
  m_.unlock();
  if (options_.queued != nullptr) options_.queued->record(system_clock().boot() - waiting.since);
  handlers_.serve(waiting.request);
  m_.lock();
  return true;
}

// All threads are busy and this is the last that reads: it must go on reading. False: it serves the
// request itself, for that takes no time, or nobody else will, or the queue is full (the rest waits
// in the kernel then).
bool Workers::leave_to_others(ByteSpan request) {
  const bool full =
      queue_.size() >= options_.queue_requests || queued_bytes_ >= options_.queue_bytes;
  if (full || running_.size() == 1 || handlers_.urgent(request)) return false;
  handlers_.queued(request);
  queue_.push_back({{request.begin(), request.end()}, system_clock().boot()});
  queued_bytes_ += request.size();
  return true;
}

std::optional<InHeader> Workers::take_queued(std::uint64_t unique) {
  MutexLock lock(m_);
  for (auto waiting = queue_.begin(); waiting != queue_.end(); ++waiting) {
    const std::vector<std::byte>& request = waiting->request;
    InHeader header;
    if (request.size() < sizeof header) continue;
    std::memcpy(&header, request.data(), sizeof header);
    if ((header.unique & ~kUniqueResend) != unique) continue;
    queued_bytes_ -= request.size();
    queue_.erase(waiting);
    return header;
  }
  return std::nullopt;
}

ByteSpan Workers::next_request(Buffer& buffer) {
  ++readers_;
  m_.unlock();
  const MutableByteSpan room = buffer.room();
  const ssize_t got = ::read(options_.device, room.data(), room.size());
  const int failure = got < 0 ? errno : 0;
  m_.lock();
  --readers_;
  if (got > 0) return room.first(static_cast<std::size_t>(got));
  if (failure == EINTR || failure == EAGAIN || failure == ENOENT)
    return {};  // ENOENT: interrupted before it was read
  if (failure != ENODEV && failure != ECONNABORTED) {
    SL_LOG(error, "event=fuse_read_failed error=\"{}\"", std::strerror(failure));
  }
  ended_ = true;
  changed_.notify_all();
  return {};
}

bool Workers::wait_ended(std::chrono::milliseconds timeout) {
  const auto until = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(m_);
  while (!ended_) {
    const auto left = until - std::chrono::steady_clock::now();
    if (left <= left.zero()) return false;
    changed_.wait_for(m_, std::min<std::chrono::nanoseconds>(left, std::chrono::seconds(60)));
  }
  return true;
}

void Workers::end() {
  MutexLock lock(m_);
  ended_ = true;
  wake_readers();
}

void Workers::wake_readers() {
  for (std::thread& thread : running_) ::pthread_kill(thread.native_handle(), wake_signal());
}

bool Workers::all_gone() {
  MutexLock lock(m_);
  return running_.empty();
}

void Workers::join() {
  MutexLock lock(m_);
  while (!running_.empty()) {
    if (ended_) wake_readers();  // again and again: one may have been on its way to read()
    changed_.wait_for(m_, std::chrono::milliseconds(20));
  }
  for (std::thread& thread : finished_) thread.join();
  finished_.clear();
}

std::size_t Workers::threads() {
  MutexLock lock(m_);
  return running_.size();
}

std::size_t Workers::most_threads() {
  MutexLock lock(m_);
  return most_;
}

}  // namespace starlane::fuse
