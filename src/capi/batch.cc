// Many reads and writes in flight: cut into pieces of a block, taken in order by the client's
// threads.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <deque>
#include <set>
#include <thread>

#include "capi/file.h"
#include "common/errno.h"
#include "common/unique_fd.h"

namespace starlane::capi {
namespace {

constexpr std::uint64_t kPiece = kBlockSize;  // and it ends where a block may end

}  // namespace

/// Lives as long as a thread of the pool may look at it.
class Batch {
 public:
  Batch(sl_client& client, UniqueFd done) : client_(client), done_(std::move(done)) { set_done(); }

  void submit(const std::shared_ptr<Batch>& self, std::vector<sl_io*> ios) SL_EXCLUDES(m_);
  /// False: not in that time.
  bool wait(int timeout_ms, Status* first) SL_EXCLUDES(m_);
  void cancel() SL_EXCLUDES(m_);
  int fd() const { return done_.get(); }
  std::uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }
  sl_client& client() { return client_; }

 private:
  struct Io {
    sl_io* told = nullptr;
    std::uint64_t started = 0;  // bytes given to threads
    std::uint64_t moved = 0;    // up to the first piece that was short
    std::uint64_t short_at = UINT64_MAX;
    std::uint32_t under_way = 0;
    Status failure;
    bool cancelled = false;
  };
  struct Piece {
    std::shared_ptr<Io> io;
    std::uint64_t begin = 0, length = 0;  // in the io
    explicit operator bool() const { return io != nullptr; }
  };

  void work() SL_EXCLUDES(m_);
  Piece take() SL_EXCLUDES(m_);
  Result<std::uint64_t> move(const Piece& piece);
  void landed(const Piece& piece, const Result<std::uint64_t>& count) SL_EXCLUDES(m_);
  void finish(Io& io) SL_REQUIRES(m_);
  void set_done();
  void clear_done();

  sl_client& client_;
  const UniqueFd done_;
  std::atomic<std::uint64_t> progress_{0};  // a figure: pairs with nothing
  Mutex m_;
  CondVar changed_;
  std::deque<std::shared_ptr<Io>> waiting_ SL_GUARDED_BY(m_);  // of which something has not begun
  std::size_t unfinished_ SL_GUARDED_BY(m_) = 0;
  std::size_t workers_ SL_GUARDED_BY(m_) = 0;
  std::set<std::uint64_t> calls_ SL_GUARDED_BY(m_);  // under way
  bool cancelling_ SL_GUARDED_BY(m_) = false;
  Status first_ SL_GUARDED_BY(m_);
};

void Batch::set_done() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(done_.get(), &one, sizeof one);
}

void Batch::clear_done() {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto n = ::read(done_.get(), &count, sizeof count);
}

void Batch::submit(const std::shared_ptr<Batch>& self, std::vector<sl_io*> ios) {
  std::uint64_t pieces = 0;
  std::size_t start = 0;
  {
    MutexLock lock(m_);
    if (unfinished_ == 0) {
      clear_done();
      cancelling_ = false;
    }
    for (sl_io* told : ios) {
      told->file->in_batches.fetch_add(1);
      pieces += told->length_bytes / kPiece + 1;
      auto io = std::make_shared<Io>();
      io->told = told;
      waiting_.push_back(std::move(io));
      ++unfinished_;
    }
    if (unfinished_ == 0) set_done();
    start = static_cast<std::size_t>(
        std::min<std::uint64_t>(client_.threads - std::min(client_.threads, workers_), pieces));
    workers_ += start;
  }
  for (std::size_t i = 0; i < start; ++i) client_.pool->submit([self] { self->work(); });
}

void Batch::work() {
  for (;;) {
    const Piece piece = take();
    if (!piece) return;
    landed(piece, move(piece));
  }
}

Batch::Piece Batch::take() {
  MutexLock lock(m_);
  while (!waiting_.empty()) {
    const std::shared_ptr<Io> io = waiting_.front();
    const std::uint64_t length = io->told->length_bytes;
    const bool over =
        io->started == length || cancelling_ || !io->failure.ok() || io->short_at != UINT64_MAX;
    if (over) {
      waiting_.pop_front();
      if (io->started < length && cancelling_) io->cancelled = true;
      if (io->under_way == 0) finish(*io);
      continue;
    }
    const std::uint64_t at = io->told->offset + io->started;
    Piece piece{io, io->started, std::min(length - io->started, kPiece - at % kPiece)};
    io->started += piece.length;
    ++io->under_way;
    return piece;
  }
  --workers_;
  return {};
}

Result<std::uint64_t> Batch::move(const Piece& piece) {
  const sl_io& told = *piece.io->told;
  const Calls::Scope scope(*client_.calls);
  {
    MutexLock lock(m_);
    if (cancelling_) return {Errc::interrupted, "cancelled"};
    calls_.insert(scope.caller().unique);
  }
  auto* memory = static_cast<std::byte*>(told.memory) + piece.begin;
  const std::uint64_t at = told.offset + piece.begin;
  Result<std::uint64_t> count = told.kind == SL_READ
                                    ? read(*told.file, scope, at, {memory, piece.length})
                                    : write(*told.file, scope, at, {memory, piece.length});
  MutexLock lock(m_);
  calls_.erase(scope.caller().unique);
  if (count.ok()) return count;
  return scope.told(count.status());
}

void Batch::landed(const Piece& piece, const Result<std::uint64_t>& count) {
  MutexLock lock(m_);
  Io& io = *piece.io;
  --io.under_way;
  if (count.ok()) {
    io.moved += *count;
    progress_.fetch_add(*count, std::memory_order_relaxed);
    if (*count < piece.length) io.short_at = std::min(io.short_at, piece.begin + *count);
  } else if (count.code() == Errc::interrupted && cancelling_) {
    io.cancelled = true;
  } else if (io.failure.ok()) {
    io.failure = count.status();
  }
  const bool waits = !waiting_.empty() && waiting_.front() == piece.io;
  if (io.under_way == 0 && !waits) finish(io);
}

/// Nothing of it is under way, nothing will begin.
void Batch::finish(Io& io) {
  sl_io& told = *io.told;
  if (!io.failure.ok())
    told.result = -errno_of(io.failure.code());
  else if (io.cancelled)
    told.result = -ECANCELED;
  else
    told.result = static_cast<std::int64_t>(std::min(io.moved, io.short_at));
  if (first_.ok() && !io.failure.ok()) first_ = io.failure;
  told.file->in_batches.fetch_sub(1);
  if (--unfinished_ > 0) return;
  set_done();
  changed_.notify_all();
}

bool Batch::wait(int timeout_ms, Status* first) {
  const Deadline deadline =
      timeout_ms < 0 ? Deadline::never() : Deadline::after(Milliseconds(timeout_ms));
  MutexLock lock(m_);
  while (unfinished_ > 0) {
    if (timeout_ms < 0) {
      changed_.wait(m_);
    } else {
      if (deadline.passed()) return false;
      changed_.wait_for(m_, deadline.left());
    }
  }
  *first = std::exchange(first_, {});
  return true;
}

void Batch::cancel() {
  std::set<std::uint64_t> calls;
  {
    MutexLock lock(m_);
    if (unfinished_ == 0) return;
    cancelling_ = true;
    calls = calls_;
  }
  for (const std::uint64_t unique : calls) client_.calls->interrupt(unique);
}

}  // namespace starlane::capi

using namespace starlane;
using namespace starlane::capi;

struct sl_batch {
  std::shared_ptr<capi::Batch> batch;
};

namespace {

Status check_io(const sl_io& io, const sl_client& client) {
  if (io.kind != SL_READ && io.kind != SL_WRITE)
    return Status(Errc::invalid, "sl_io.kind is SL_READ or SL_WRITE");
  if (io.file == nullptr || io.file->client != &client)
    return Status(Errc::invalid, "sl_io.file is no open file of the batch's client");
  if (io.memory == nullptr && io.length_bytes > 0)
    return Status(Errc::invalid, "sl_io.memory is a null pointer");
  constexpr auto kMost = static_cast<std::uint64_t>(INT64_MAX);
  if (io.offset > kMost || io.length_bytes > kMost - io.offset)
    return Status(Errc::invalid, "offset and length go beyond 2^63 - 1");
  if (io.kind == SL_READ ? !io.file->reads() : !io.file->writes())
    return Status(Errc::bad_handle, "a file of the batch is not open for that");
  return {};
}

/// All of the array are right, or none is begun.
Result<std::vector<sl_io*>> checked(const sl_client& client, sl_io* ios, std::size_t count) {
  std::vector<sl_io*> out;
  if (count == 0) return out;
  if (ios == nullptr || ios->size < sizeof *ios)
    return {Errc::invalid, "set size of the first sl_io to sizeof(sl_io)"};
  out.reserve(count);
  for (std::size_t i = 0; i < count; ++i)
    out.push_back(reinterpret_cast<sl_io*>(reinterpret_cast<char*>(ios) + i * ios->size));
  for (const sl_io* io : out) SL_TRY(check_io(*io, client));
  return out;
}

/// Each thread brings in a share: the kernel clears pages in the caller's time.
void populate(std::byte* memory, std::uint64_t length, std::size_t threads) {
  const std::uint64_t share = round_up(divide_up(length, threads), 2_MiB);
  std::vector<std::thread> running;
  for (std::uint64_t at = 0; at < length; at += share) {
    const std::uint64_t n = std::min(share, length - at);
    running.emplace_back([memory, at, n] {
      if (::madvise(memory + at, n, MADV_POPULATE_WRITE) == 0) return;
      for (std::uint64_t page = 0; page < n; page += 4096) {  // a kernel before 5.14
        auto* byte = reinterpret_cast<volatile std::byte*>(memory + at + page);
        *byte = *byte;
      }
    });
  }
  for (std::thread& thread : running) thread.join();
}

struct Pages {
  std::byte* at = nullptr;
  std::uint64_t length = 0;
};
/// Whole pages inside the memory.
Pages pages_in(void* memory, std::uint64_t length) {
  constexpr std::uint64_t kPage = 4096;
  const auto begin = round_up(reinterpret_cast<std::uintptr_t>(memory), kPage);
  const auto end = round_down(reinterpret_cast<std::uintptr_t>(memory) + length, kPage);
  if (end <= begin) return {};
  return {reinterpret_cast<std::byte*>(begin), end - begin};
}

sl_client* client_of(sl_batch* batch) {
  return batch != nullptr ? &batch->batch->client() : nullptr;
}

}  // namespace

extern "C" {

int sl_batch_new(sl_client* client, sl_batch** batch) {
  return with_client(client, [&](const Calls::Scope&) -> Status {
    if (batch == nullptr) return Status(Errc::invalid, "sl_batch_new needs a place for the batch");
    UniqueFd done(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!done) return system_error("cannot make an eventfd", errno);
    auto made = std::make_unique<sl_batch>();
    made->batch = std::make_shared<capi::Batch>(*client, std::move(done));
    client->opened.fetch_add(1);
    *batch = made.release();
    return {};
  });
}

int sl_batch_submit(sl_batch* batch, sl_io* ios, size_t count) {
  return with_client(client_of(batch), [&](const Calls::Scope&) -> Status {
    std::vector<sl_io*> all = SL_TRY(checked(batch->batch->client(), ios, count));
    batch->batch->submit(batch->batch, std::move(all));
    return {};
  });
}

int sl_batch_fd(sl_batch* batch) {
  return guarded([&]() -> int {
    if (batch == nullptr) return fail(EINVAL, "the batch is a null pointer");
    return batch->batch->fd();
  });
}

int sl_batch_wait(sl_batch* batch, int timeout_ms) {
  return guarded([&]() -> int {
    if (batch == nullptr) return fail(EINVAL, "the batch is a null pointer");
    if (in_child(batch->batch->client())) return refuse_child();
    Status first;
    if (!batch->batch->wait(timeout_ms, &first)) return fail(EAGAIN, "the batch is not done yet");
    return outcome(first);
  });
}

uint64_t sl_batch_progress_bytes(sl_batch* batch) {
  return batch != nullptr ? batch->batch->progress() : 0;
}

int sl_batch_cancel(sl_batch* batch) {
  return guarded([&]() -> int {
    if (batch == nullptr) return fail(EINVAL, "the batch is a null pointer");
    if (in_child(batch->batch->client())) return refuse_child();
    batch->batch->cancel();
    return 0;
  });
}

int sl_batch_free(sl_batch* batch) {
  return guarded([&]() -> int {
    if (batch == nullptr || in_child(batch->batch->client())) return 0;
    const std::unique_ptr<sl_batch> owned(batch);
    owned->batch->cancel();
    Status ignored;
    owned->batch->wait(-1, &ignored);
    owned->batch->client().opened.fetch_sub(1);
    return 0;
  });
}

int sl_register(sl_client* client, void* memory, uint64_t length) {
  return with_client(client, [&](const Calls::Scope&) -> Status {
    if (memory == nullptr) return Status(Errc::invalid, "the memory is a null pointer");
    const Pages pages = pages_in(memory, length);
    if (pages.length == 0) return {};
    (void)::madvise(pages.at, pages.length, MADV_HUGEPAGE);  // or ordinary ones
    populate(pages.at, pages.length, std::max(1U, std::thread::hardware_concurrency()));
    (void)::mlock(pages.at, pages.length);  // as far as RLIMIT_MEMLOCK goes
    return {};
  });
}

int sl_unregister(sl_client* client, void* memory, uint64_t length) {
  return with_client(client, [&](const Calls::Scope&) -> Status {
    if (memory == nullptr) return Status(Errc::invalid, "the memory is a null pointer");
    const Pages pages = pages_in(memory, length);
    if (pages.length > 0) (void)::munlock(pages.at, pages.length);
    return {};
  });
}

}  // extern "C"
