#include "client/node_cache/filler.h"

#include <algorithm>

#include "common/log.h"
#include "common/thread_pool.h"

namespace starlane::client {
namespace {

constexpr std::size_t kChunksAhead = 2;  // of a reader: it takes one while the next is on its way

}  // namespace

Fill::Fill(FileKey file, const FileState& version, std::uint64_t length, std::uint64_t chunk_bytes,
           std::shared_ptr<CacheFile> target, Node pushed_to)
    : file_(file),
      version_(version),
      length_(length),
      chunk_bytes_(chunk_bytes),
      target_(std::move(target)),
      pushed_to_(pushed_to),
      begun_(system_clock().boot()),
      chunks_(divide_up(length, chunk_bytes)) {}

bool Fill::all_at_least(Progress state, std::uint64_t offset, std::uint64_t length) const {
  if (length == 0 || offset + length > length_) return false;
  for (std::uint64_t i = offset / chunk_bytes_; i <= (offset + length - 1) / chunk_bytes_; ++i) {
    if (chunk(i) < state) return false;
  }
  return true;
}

bool Fill::finish(State state) {
  State running = State::running;
  return state_.compare_exchange_strong(running, state);
}

void Fill::complete_already() {
  for (auto& chunk : chunks_) chunk.store(Progress::filled, std::memory_order_release);
  next_ = chunks_.size();
  done_ = length_;
  finish(State::complete);
}

Filler::Filler(FileIo& io, KernelNotifier* notifier, const Options& options,
               std::function<void(Fill&)> changed)
    : io_(io), notifier_(notifier), options_(options), changed_(std::move(changed)) {
  for (std::uint32_t i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { run(); });
}

Filler::~Filler() {
  {
    MutexLock lock(m_);
    stopping_ = true;
    for (const auto& fill : queue_) fill->cancel();
    for (const auto& fill : active_) fill->cancel();
    wake_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void Filler::add(std::shared_ptr<Fill> fill) {
  MutexLock lock(m_);
  queue_.push_back(std::move(fill));
  wake_.notify_all();
}

std::uint64_t Filler::backlog(const Fill& fill) {
  MutexLock lock(m_);
  std::uint64_t bytes = 0;
  for (const auto* list : {&active_, &queue_}) {
    for (const auto& other : *list) {
      if (other->state() == Fill::State::running)
        bytes += other->length() - std::min(other->length(), other->done_bytes());
      if (other.get() == &fill) return bytes;
    }
  }
  return bytes;
}

void Filler::hurry(const std::shared_ptr<Fill>& fill, std::uint64_t offset, std::uint64_t length) {
  const std::size_t end =
      std::min(divide_up(offset + length, fill->chunk_bytes_) + kChunksAhead, fill->chunks_.size());
  const auto absent = [&](std::size_t i) { return fill->chunk(i) == Fill::Progress::absent; };
  std::size_t i = offset / fill->chunk_bytes_;
  while (i < end && !absent(i)) ++i;
  if (i >= end) return;
  MutexLock lock(m_);
  for (; i < end; ++i) {
    if (!absent(i)) continue;
    fill->chunks_[i].store(Fill::Progress::asked, std::memory_order_release);
    hurried_.emplace_back(fill, i);
  }
  wake_.notify_all();
}

bool Filler::next(Chunk& chunk) {
  std::erase_if(active_, [](const auto& fill) { return fill->state() != Fill::State::running; });
  if (next_hurried(chunk)) return true;
  while (!queue_.empty()) {
    const std::shared_ptr<Fill> fill = queue_.front();
    const auto begun = [&] { return fill->chunk(fill->next_) >= Fill::Progress::begun; };
    while (fill->next_ < fill->chunks_.size() && begun()) ++fill->next_;
    if (fill->state() == Fill::State::running && fill->next_ < fill->chunks_.size()) {
      chunk = begin(fill, fill->next_);
      return true;
    }
    if (fill->state() == Fill::State::running) active_.push_back(fill);
    queue_.pop_front();
  }
  return false;
}

bool Filler::next_hurried(Chunk& chunk) {
  while (!hurried_.empty()) {
    const auto [fill, index] = std::move(hurried_.front());
    hurried_.pop_front();
    if (fill->state() != Fill::State::running || fill->chunk(index) >= Fill::Progress::begun)
      continue;
    chunk = begin(fill, index);
    return true;
  }
  return false;
}

Filler::Chunk Filler::begin(const std::shared_ptr<Fill>& fill, std::size_t index) {
  fill->chunks_[index].store(Fill::Progress::begun, std::memory_order_release);
  const std::uint64_t from = index * fill->chunk_bytes_;
  return {fill, from, std::min(fill->chunk_bytes_, fill->length() - from)};
}

void Filler::run() {
  name_this_thread("cache-fill");
  std::vector<std::byte> buffer;
  m_.lock();
  while (!stopping_) {
    Chunk chunk;
    if (!next(chunk)) {
      wake_.wait(m_);
      continue;
    }
    m_.unlock();
    const Status status = read(chunk, buffer);
    Fill& fill = *chunk.fill;
    // stale: the file changed meanwhile, which is nobody's fault.
    if (!status.ok() && fill.finish(Fill::State::failed) && status.code() != Errc::stale) {
      SL_LOG(warn, "event=fill_failed inode={} error=\"{}\"", fill.file().inode.value,
             status.to_string());
    }
    if (status.ok()) {
      fill.chunks_[chunk.offset / fill.chunk_bytes_].store(Fill::Progress::filled,
                                                           std::memory_order_release);
      filled_.fetch_add(chunk.length, std::memory_order_relaxed);
      if (fill.done_.fetch_add(chunk.length) + chunk.length == fill.length())
        fill.finish(Fill::State::complete);
    }
    changed_(fill);
    chunk.fill.reset();
    m_.lock();
  }
  m_.unlock();
}

Status Filler::read(const Chunk& chunk, std::vector<std::byte>& buffer) {
  const Fill& fill = *chunk.fill;
  if (!fill.target_) buffer.resize(options_.chunk_bytes);
  const Landing out = fill.target_ ? fill.target_->landing(chunk.offset, chunk.length)
                                   : Landing(MutableByteSpan(buffer).first(chunk.length));
  const std::uint64_t got = SL_TRY(io_.read_into(fill.file_, fill.version_, chunk.offset, out, 0));
  if (got != chunk.length) return Status(Errc::stale, "the file is shorter than its version says");
  if (!fill.target_) push(chunk, out.bytes());
  return {};
}

// A change of the file cancels the fill and then invalidates its pages; pages pushed in between are
// taken back here.
void Filler::push(const Chunk& chunk, ByteSpan bytes) {
  Fill& fill = *chunk.fill;
  fill.storing_.fetch_add(1);
  if (fill.state_.load() == Fill::State::running && notifier_ != nullptr) {
    const Status status = notifier_->store(fill.pushed_to_, chunk.offset, bytes);
    if (!status.ok()) fill.cancel();  // the kernel has forgotten the node: nobody reads it
    if (status.ok() && fill.state_.load() != Fill::State::running) {
      notifier_->invalidate_inode(fill.pushed_to_, static_cast<std::int64_t>(chunk.offset),
                                  static_cast<std::int64_t>(chunk.length));
    }
  }
  fill.storing_.fetch_sub(1);
}

}  // namespace starlane::client
