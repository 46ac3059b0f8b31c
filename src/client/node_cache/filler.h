// Threads that read large files ahead of their readers, in file order and first where readers are,
// straight into a copy in the node cache, or into the kernel's page cache where there is no
// passthrough. One fill a file version. Any thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "client/file_io.h"
#include "client/node_cache/cache_mount.h"
#include "common/mutex.h"

namespace starlane::client {

/// One file on its way. Changed by the filler only, but for `cancel`.
class Fill {
 public:
  enum class State : std::uint8_t { running, complete, failed, cancelled };

  /// target: bytes go there; null: they are pushed to the kernel as pages of `pushed_to`.
  Fill(FileKey file, const FileState& version, std::uint64_t length, std::uint64_t chunk_bytes,
       std::shared_ptr<CacheFile> target, Node pushed_to);

  /// Nothing is left to do: the target was filled by an earlier daemon.
  void complete_already();

  State state() const { return state_.load(std::memory_order_acquire); }
  std::uint64_t done_bytes() const { return done_.load(std::memory_order_relaxed); }
  std::uint64_t length() const { return length_; }
  /// The whole range has been read, is being read or is next.
  bool is_coming(std::uint64_t offset, std::uint64_t length) const {
    return all_at_least(Progress::asked, offset, length);
  }
  /// The whole range lies in the target.
  bool has(std::uint64_t offset, std::uint64_t length) const {
    return all_at_least(Progress::filled, offset, length);
  }
  /// Nothing more is begun; a push that is under way is undone by the thread that does it.
  void cancel() { finish(State::cancelled); }
  /// Pages are being pushed this moment.
  bool storing() const { return storing_.load(std::memory_order_acquire) > 0; }
  const FileKey& file() const { return file_; }
  Nanoseconds begun() const { return begun_; }

 private:
  friend class Filler;
  enum class Progress : std::uint8_t { absent, asked, begun, filled };  // only ever goes up
  bool all_at_least(Progress state, std::uint64_t offset, std::uint64_t length) const;
  Progress chunk(std::size_t i) const { return chunks_[i].load(std::memory_order_acquire); }
  bool finish(State state);

  const FileKey file_;
  const FileState version_;
  const std::uint64_t length_;  // to be filled
  const std::uint64_t chunk_bytes_;
  const std::shared_ptr<CacheFile> target_;
  const Node pushed_to_;
  const Nanoseconds begun_;
  std::size_t next_ = 0;  // chunks before it have begun; under the filler's lock
  std::atomic<State> state_{State::running};  // release: pairs with the acquire of state()
  std::atomic<std::uint64_t> done_{0};
  std::atomic<int> storing_{
      0};  // raised before state_ is checked, so a canceller that sees 0 has stopped the push
  // Up to begun changed under the filler's lock; filled with release: pairs with has().
  std::vector<std::atomic<Progress>> chunks_;
};

class Filler {
 public:
  struct Options {
    std::uint32_t threads = 4;
    std::uint64_t chunk_bytes = 4_MiB;
  };
  /// changed: a fill has gone on or ended; called without a lock. notifier: null when nothing is to
  /// be pushed.
  Filler(FileIo& io, KernelNotifier* notifier, const Options& options,
         std::function<void(Fill&)> changed);
  /// Cancels what is left, and joins.
  ~Filler();

  void add(std::shared_ptr<Fill> fill) SL_EXCLUDES(m_);
  /// A reader is at [offset, offset + length): that and a little more comes before everything else,
  /// so that each byte is read once, and into its place, wherever the readers of a file are.
  void hurry(const std::shared_ptr<Fill>& fill, std::uint64_t offset, std::uint64_t length)
      SL_EXCLUDES(m_);
  /// Bytes to be read until this fill is complete, those before it in the queue included.
  std::uint64_t backlog(const Fill& fill) SL_EXCLUDES(m_);
  std::uint64_t filled_bytes() const { return filled_.load(std::memory_order_relaxed); }

 private:
  struct Chunk {
    std::shared_ptr<Fill> fill;
    std::uint64_t offset = 0, length = 0;
  };
  void run();
  bool next(Chunk& chunk) SL_REQUIRES(m_);
  bool next_hurried(Chunk& chunk) SL_REQUIRES(m_);
  Chunk begin(const std::shared_ptr<Fill>& fill, std::size_t index) SL_REQUIRES(m_);
  Status read(const Chunk& chunk, std::vector<std::byte>& buffer);
  void push(const Chunk& chunk, ByteSpan bytes);

  FileIo& io_;
  KernelNotifier* const notifier_;
  const Options options_;
  const std::function<void(Fill&)> changed_;
  Mutex m_;
  CondVar wake_;
  std::deque<std::shared_ptr<Fill>> queue_ SL_GUARDED_BY(m_);
  std::deque<std::shared_ptr<Fill>> active_ SL_GUARDED_BY(m_);  // begun wholly, not yet ended
  std::deque<std::pair<std::shared_ptr<Fill>, std::size_t>> hurried_ SL_GUARDED_BY(m_);
  bool stopping_ SL_GUARDED_BY(m_) = false;
  std::atomic<std::uint64_t> filled_{0};  // a figure
  std::vector<std::thread> threads_;
};

}  // namespace starlane::client
