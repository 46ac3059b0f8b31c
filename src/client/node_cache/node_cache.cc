#include "client/node_cache/node_cache.h"

#include <fcntl.h>

#include <algorithm>
#include <thread>

#include "client/node_cache/copy_record.h"
#include "client/open_flags.h"
#include "client/read/read_streams.h"
#include "common/host_size.h"
#include "common/log.h"

namespace starlane::client {
namespace {

using namespace std::chrono_literals;

constexpr Nanoseconds kTicketLife = 10s;
constexpr std::size_t kMaxTickets = 256;
constexpr Nanoseconds kAbandonAfter =
    1s;  // loaders close a file for a moment between two looks at it
constexpr Nanoseconds kShowsItsRate = 50ms;  // what a fill has done by then says how long it takes

Nanoseconds now() { return system_clock().boot(); }

}  // namespace

NodeCache::NodeCache(FileIo& io, const NodeCacheOptions& options)
    : io_(io),
      options_(options),
      budget_(options.budget_bytes),
      rate_(options.expected_bytes_per_second) {}

NodeCache::~NodeCache() { stop(); }

void NodeCache::start(KernelNotifier* notifier, const KernelFeatures& features) {
  std::string reason;
  std::unique_ptr<CacheMount> mount;
  if (!options_.passthrough) {
    reason = "switched off";
  } else if (!features.passthrough) {
    reason = "the kernel has no FUSE passthrough (Linux 6.9), or this process is not root";
  } else {
    auto made = open_mount();
    if (made.ok())
      mount = std::move(made.value());
    else
      reason = made.status().text();
  }
  Filler::Options options;
  const std::uint32_t cores = std::max(1U, std::thread::hardware_concurrency());
  options.threads = options_.fill_threads != 0 ? options_.fill_threads : std::clamp(cores, 4U, 16U);
  options.chunk_bytes = options_.fill_read_bytes;
  filler_ =
      std::make_unique<Filler>(io_, notifier, options, [this](Fill& fill) { fill_changed(fill); });
  MutexLock lock(m_);
  notifier_ = notifier;
  mount_ = std::move(mount);
  reason_ = reason;
  stopping_ = false;
  if (mount_ && options_.ledger != nullptr) restore();
}

void NodeCache::stop() {
  {
    MutexLock lock(m_);
    stopping_ = true;
    for (auto& [key, file] : files_) {
      if (file.live) file.live->fill->cancel();
      stop_push(file);
    }
    changed_.notify_all();
  }
  filler_.reset();
  MutexLock lock(m_);
  while (
      std::any_of(files_.begin(), files_.end(), [](const auto& f) { return f.second.busy > 0; })) {
    changed_.wait_for(m_, 10ms);
  }
  files_.clear();
  tracked_.store(0, std::memory_order_relaxed);
  mount_.reset();
  used_ = 0;
}

std::uint8_t NodeCache::preferred(FileKey key) {
  if (tracked_.load(std::memory_order_relaxed) == 0) return 0;
  MutexLock lock(m_);
  const auto found = files_.find(key);
  if (found == files_.end() || found->second.writers > 0) return 0;
  const std::uint8_t number = found->second.preferred;
  if (number != 0) {
    Incarnation& incarnation = found->second.incarnations[number];
    incarnation.slot = found->second.slot;
    incarnation.named = true;
  }
  return number;
}

// ---- Opens ----

Result<OpenDecision> NodeCache::open(const Open& open) {
  Freed freed;
  MutexLock lock(m_);
  File& file = files_[open.file];
  tracked_.store(files_.size(), std::memory_order_relaxed);
  ++file.busy;
  Incarnation& here = file.incarnations[open.node.incarnation];
  here.slot = file.slot = open.node.slot;
  here.named = here.named || open.node.incarnation != 0;
  const auto want = wanted(open, file, freed);
  Result<OpenDecision> decision =
      want.ok() ? settle(open, file, want.value()) : Result<OpenDecision>(want.status());
  --file.busy;
  if (decision.ok() && decision.value().kind == OpenDecision::Kind::passthrough)
    ++passthrough_opens_;
  note_file(open.file, file);
  erase_if_idle(open.file);
  changed_.notify_all();
  return decision;
}

Result<std::uint8_t> NodeCache::wanted(const Open& open, File& file, Freed& freed) {
  const bool changes = writes(open.flags) || (open.flags & O_TRUNC) != 0;
  if (changes || open.written) stop_push(file);  // before the first page of a writer
  drain_pushes(file);
  if (changes || open.written || file.writers > 0 || open.state.length < options_.min_file_bytes)
    return std::uint8_t{0};
  if (file.live && (file.live->state.version != open.state.version || file.live->ended_badly()))
    retire(file, freed);
  if (!file.live && !begin_copy(open.file, open.state, file, freed).ok()) {
    begin_push(open, file);
    return std::uint8_t{0};
  }
  return join_copy(open, file);
}

// The copy's number once it is complete; 0 when it is not worth the wait.
Result<std::uint8_t> NodeCache::join_copy(const Open& open, File& file) {
  const CopyPointer copy = file.live;
  copy->last_used = ++use_counter_;
  if (!copy->complete()) {
    const Status waited = wait_for_fill(copy, open.unique, file.opens > 0);
    if (waited.code() == Errc::interrupted) return waited;
  }
  // Meanwhile somebody may have begun to write, or the version may have changed.
  const bool still = file.live == copy && copy->complete() && file.writers == 0;
  return still ? copy->number : std::uint8_t{0};
}

// patient: as long as bytes arrive; else only if little is left.
Status NodeCache::wait_for_fill(const CopyPointer& copy, std::uint64_t unique, bool patient) {
  const double limit = std::chrono::duration<double>(options_.wait_limit).count();
  waiting_[unique] = false;
  ++copy->waiters;
  std::uint64_t seen = copy->fill->done_bytes();
  Nanoseconds moved = now();
  Status result;
  while (copy->fill->state() == Fill::State::running && !stopping_) {
    if (waiting_[unique]) {
      result = Status(Errc::interrupted, "the wait for a file's copy was interrupted");
      break;
    }
    if (copy->fill->done_bytes() != seen) {
      seen = copy->fill->done_bytes();
      moved = now();
    }
    const bool stalled = now() - moved >= options_.stall_limit;
    const bool known = now() - copy->fill->begun() >= kShowsItsRate;
    if (stalled || (!patient && known && seconds_left(*copy) > limit)) {
      result = Status(Errc::busy, "the copy takes longer");
      break;
    }
    changed_.wait_for(m_, 20ms);
  }
  --copy->waiters;
  waiting_.erase(unique);
  return result;
}

double NodeCache::seconds_left(const Copy& copy) {
  double rate = rate_;
  const Nanoseconds elapsed = now() - copy.fill->begun();
  if (elapsed >= kShowsItsRate && copy.fill->done_bytes() > 0)
    rate = static_cast<double>(copy.fill->done_bytes()) /
           std::chrono::duration<double>(elapsed).count();
  return static_cast<double>(filler_->backlog(*copy.fill)) / std::max(rate, 1.0);
}

Result<OpenDecision> NodeCache::settle(const Open& open, File& file, std::uint8_t want) {
  const bool was_moved = take_ticket(file, open.pid);
  file.preferred = want;
  if (open.node.incarnation != want && !was_moved) {
    if (file.tickets.size() >= kMaxTickets) file.tickets.erase(file.tickets.begin());
    file.tickets.push_back({open.pid, now() + kTicketLife});
    return OpenDecision{OpenDecision::Kind::moved, -1};
  }
  return serve(open, file);
}

bool NodeCache::take_ticket(File& file, std::uint32_t pid) {
  std::erase_if(file.tickets, [at = now()](const Ticket& ticket) { return ticket.until < at; });
  const auto found = std::find_if(file.tickets.begin(), file.tickets.end(),
                                  [&](const Ticket& ticket) { return ticket.pid == pid; });
  if (found == file.tickets.end()) return false;
  file.tickets.erase(found);
  return true;
}

// On the node where the open arrived. The kernel takes one mode a node: what its live opens have.
Result<OpenDecision> NodeCache::serve(const Open& open, File& file) {
  Incarnation& here = file.incarnations[open.node.incarnation];
  OpenDecision decision;
  const bool writer = writes(open.flags);
  if (here.passthrough_opens > 0) {
    if (writer) {  // reached only through a descriptor of the old incarnation (/proc/self/fd)
      return Status(Errc::text_busy,
                    "the file is mapped from the node cache: open it by its path to write");
    }
    decision.kind = OpenDecision::Kind::passthrough;
  } else if (!writer && here.cached_opens == 0 && open.node.incarnation != 0 && file.live &&
             file.live->number == open.node.incarnation && file.live->complete() &&
             file.live->state.version == open.state.version && file.writers == 0 && !open.written) {
    here.copy = file.live;
    decision.kind = OpenDecision::Kind::passthrough;
  }
  if (decision.kind == OpenDecision::Kind::passthrough) {
    ++here.passthrough_opens;
    ++here.copy->opens;
    here.copy->last_used = ++use_counter_;
    if (here.copy->file) decision.backing_fd = here.copy->file->backing_fd();
  } else {
    ++here.cached_opens;
    const bool filling =
        file.live && file.live->fill->state() == Fill::State::running && file.writers == 0;
    if (options_.direct_while_filling && filling && !writer && !open.written &&
        open.node.incarnation == 0 && (open.flags & O_TRUNC) == 0) {
      decision.kind = OpenDecision::Kind::direct;
    }
    // Straight from the writer's memory: the pages would cost a copy, and who reads the file later
    // maps the cache's copy. Such a descriptor cannot be mapped itself.
    if (only_writes(open.flags) && mount_) decision.kind = OpenDecision::Kind::direct;
  }
  ++file.opens;
  if (writer) ++file.writers;
  return decision;
}

void NodeCache::interrupt(std::uint64_t unique) {
  MutexLock lock(m_);
  const auto found = waiting_.find(unique);
  if (found == waiting_.end()) return;
  found->second = true;
  changed_.notify_all();
}

void NodeCache::release(FileKey key, Node node, bool writer) {
  Freed freed;
  MutexLock lock(m_);
  const auto found = files_.find(key);
  if (found == files_.end()) return;
  File& file = found->second;
  const auto incarnation = file.incarnations.find(node.incarnation);
  if (incarnation == file.incarnations.end()) return;
  Incarnation& here = incarnation->second;
  if (here.passthrough_opens > 0) {  // then all of its opens are
    --here.copy->opens;
    if (--here.passthrough_opens == 0) {
      if (here.copy != file.live && here.copy->opens == 0) uncharge(*here.copy);
      freed.push_back(std::move(here.copy));
    }
  } else if (here.cached_opens > 0) {
    --here.cached_opens;
  } else {
    return;
  }
  --file.opens;
  if (writer && file.writers > 0) --file.writers;
  if (file.opens == 0) file.idle_since = now();
  if (here.cached_opens + here.passthrough_opens == 0 && !here.named)
    file.incarnations.erase(incarnation);
  erase_if_idle(key);
}

void NodeCache::forget(FileKey key, Node node) {
  if (tracked_.load(std::memory_order_relaxed) == 0) return;
  MutexLock lock(m_);
  const auto found = files_.find(key);
  if (found == files_.end()) return;
  const auto incarnation = found->second.incarnations.find(node.incarnation);
  if (incarnation != found->second.incarnations.end()) {
    incarnation->second.named = false;
    if (incarnation->second.cached_opens + incarnation->second.passthrough_opens == 0) {
      found->second.incarnations.erase(incarnation);
    }
  }
  erase_if_idle(key);
}

void NodeCache::erase_if_idle(FileKey key) {
  const auto found = files_.find(key);
  if (found == files_.end()) return;
  File& file = found->second;
  std::erase_if(file.stopped_pushes, [](const auto& push) { return !push->storing(); });
  if (file.opens > 0 || file.busy > 0 || file.live || file.push || !file.stopped_pushes.empty())
    return;
  std::erase_if(file.tickets, [at = now()](const Ticket& ticket) { return ticket.until < at; });
  const bool known = std::any_of(file.incarnations.begin(), file.incarnations.end(),
                                 [](const auto& incarnation) { return incarnation.second.named; });
  if (known || !file.tickets.empty()) return;
  if (found->second.noted != 0)
    options_.ledger->erase({Ledger::Kind::cached_file, key.branch.value, key.inode.value});
  files_.erase(found);
  tracked_.store(files_.size(), std::memory_order_relaxed);
}

// ---- Copies ----

Status NodeCache::begin_copy(FileKey key, const FileState& state, File& file, Freed& freed) {
  if (!mount_ || stopping_) return Status(Errc::unsupported, reason_);
  const std::uint8_t number = free_number(file);
  if (number == 0) return Status(Errc::busy, "the kernel remembers all incarnations of the file");
  const std::uint64_t charge = round_up(state.length, kHugePage);
  if (!make_room(charge, freed))
    return Status(Errc::no_space, "the file does not fit into the node cache");
  auto made = mount_->create(state.length);
  if (!made.ok()) return made.status();
  auto copy = std::make_shared<Copy>();
  copy->number = file.last_number = number;
  copy->state = state;
  copy->file = std::move(made.value());
  copy->fill = std::make_shared<Fill>(key, state, state.length, options_.fill_read_bytes,
                                      copy->file, Node{});
  copy->charged = charge;
  copy->last_used = ++use_counter_;
  used_ += charge;
  file.live = copy;
  filler_->add(copy->fill);
  return {};
}

// In turn, so that a number rests as long as possible before it comes again.
std::uint8_t NodeCache::free_number(File& file) {
  for (int i = 1; i <= 255; ++i) {
    const auto number = static_cast<std::uint8_t>((file.last_number + i) % 256);
    if (number != 0 && !file.incarnations.contains(number)) return number;
  }
  return 0;
}

bool NodeCache::make_room(std::uint64_t bytes, Freed& freed) {
  if (bytes > budget_) return false;
  const std::uint64_t available = available_memory();
  std::uint64_t evicted = 0;
  const auto tight = [&]() SL_REQUIRES(m_) {
    return used_ + bytes > budget_ ||
           (available != 0 && available + evicted < bytes + budget_ / 16);
  };
  while (tight()) {
    const auto oldest = oldest_idle();
    if (!oldest) return false;
    File& file = files_.find(*oldest)->second;
    evicted += file.live->charged;
    retire(file, freed);
    erase_if_idle(*oldest);
  }
  return true;
}

// The copy that nobody has open and that was used the longest ago.
std::optional<FileKey> NodeCache::oldest_idle() {
  std::optional<FileKey> oldest;
  std::uint64_t oldest_use = UINT64_MAX;
  for (auto& [key, file] : files_) {
    if (!file.live || file.live->opens > 0 || file.live->waiters > 0) continue;
    if (!file.live->complete() && file.opens > 0) continue;  // soon wanted
    if (file.live->last_used >= oldest_use) continue;
    oldest = key;
    oldest_use = file.live->last_used;
  }
  return oldest;
}

void NodeCache::uncharge(Copy& copy) { used_ -= std::exchange(copy.charged, 0); }

// The next open gets another incarnation; opens that are there keep what they have.
void NodeCache::retire(File& file, Freed& freed) {
  file.preferred = 0;
  if (!file.live) return;
  strike_copy(file.live->fill->file(), *file.live);
  file.live->fill->cancel();
  if (file.live->opens == 0) uncharge(*file.live);
  freed.push_back(std::exchange(file.live, nullptr));
}

// Nobody has come back to a file that was merely looked at.
void NodeCache::abandon_if_unwanted(File& file, const Fill& fill, Freed& freed) {
  if (file.opens > 0 || file.busy > 0 || now() - file.idle_since < kAbandonAfter) return;
  if (file.push.get() == &fill) stop_push(file);
  if (file.live && file.live->fill.get() == &fill) retire(file, freed);
}

void NodeCache::fill_changed(Fill& fill) {
  Freed freed;
  MutexLock lock(m_);
  if (fill.state() == Fill::State::complete && fill.length() >= options_.min_file_bytes) {
    const double elapsed = std::chrono::duration<double>(now() - fill.begun()).count();
    rate_ = 0.5 * rate_ + 0.5 * static_cast<double>(fill.length()) / std::max(elapsed, 1e-3);
  }
  const auto found = files_.find(fill.file());
  if (found != files_.end() && found->second.live && found->second.live->fill.get() == &fill &&
      fill.state() == Fill::State::complete)
    note_copy(fill.file(), *found->second.live);
  if (found != files_.end() && fill.state() == Fill::State::running)
    abandon_if_unwanted(found->second, fill, freed);
  if (found != files_.end() && fill.state() != Fill::State::running) {
    if (found->second.push.get() == &fill) found->second.push = nullptr;
    erase_if_idle(fill.file());
  }
  changed_.notify_all();
}

// ---- Pages pushed ahead, where there is no passthrough ----

void NodeCache::begin_push(const Open& open, File& file) {
  if (notifier_ == nullptr || open.node.incarnation != 0 || stopping_) return;
  if (file.push || file.pushed_version == open.state.version) return;
  const std::uint64_t window =
      options_.push_window_bytes != 0 ? options_.push_window_bytes : budget_;
  std::uint64_t length = std::min(open.state.length, window);
  const std::uint64_t available =
      available_memory();  // beyond it, pages would drive out those that are read next
  if (available != 0) length = std::min(length, available / 2);
  if (length < options_.fill_read_bytes) return;
  file.pushed_version =
      open.state.version;  // not again, while the kernel knows the node and so may have the pages
  file.incarnations[0].named = true;
  file.push = std::make_shared<Fill>(open.file, open.state, length, options_.fill_read_bytes,
                                     nullptr, open.node);
  filler_->add(file.push);
}

void NodeCache::stop_push(File& file) {
  if (!file.push) return;
  file.push->cancel();
  if (file.push->storing()) file.stopped_pushes.push_back(file.push);
  file.push = nullptr;
  file.pushed_version = 0;
}

// Until no page of an older version or from before a writer is on its way into the kernel.
void NodeCache::drain_pushes(File& file) {
  for (;;) {
    std::erase_if(file.stopped_pushes, [](const auto& push) { return !push->storing(); });
    if (file.stopped_pushes.empty() || stopping_) return;
    changed_.wait_for(m_, 2ms);
  }
}

// ---- Changes ----

// The copy that a local change must reach: one that somebody has open. Others are dropped: cheaper
// than to keep up.
NodeCache::CopyPointer NodeCache::mirror_of(FileKey key, Freed& freed) {
  const auto found = files_.find(key);
  if (found == files_.end()) return nullptr;
  File& file = found->second;
  stop_push(file);
  if (!file.live) return nullptr;
  if (file.live->complete() && file.live->opens > 0) return file.live;
  retire(file, freed);
  return nullptr;
}

template <typename Change>
void NodeCache::mirror(FileKey key, const Change& change) {
  if (tracked_.load(std::memory_order_relaxed) == 0) return;
  Freed freed;
  CopyPointer copy;
  {
    MutexLock lock(m_);
    copy = mirror_of(key, freed);
  }
  if (copy) grown(key, copy, change(*copy->file));
}

void NodeCache::local_write(FileKey key, std::uint64_t offset, ByteSpan bytes) {
  mirror(key, [&](CacheFile& file) { return file.write(offset, bytes); });
}

void NodeCache::local_truncate(FileKey key, std::uint64_t length) {
  mirror(key, [&](CacheFile& file) { return file.truncate(length); });
}

void NodeCache::local_zero(FileKey key, std::uint64_t offset, std::uint64_t length) {
  mirror(key, [&](CacheFile& file) { return file.zero(offset, length); });
}

void NodeCache::grown(FileKey key, const CopyPointer& copy, const Status& written) {
  Freed freed;
  MutexLock lock(m_);
  const auto found = files_.find(key);
  const bool live = found != files_.end() && found->second.live == copy;
  if (copy->charged != 0) {
    const std::uint64_t charge = round_up(copy->file->length(), kHugePage);
    used_ += charge - copy->charged;
    copy->charged = charge;
  }
  if (live && (!written.ok() || used_ > budget_)) retire(found->second, freed);
}

void NodeCache::local_commit(FileKey key, std::uint64_t previous, const FileState& current) {
  if (tracked_.load(std::memory_order_relaxed) == 0) return;
  Freed freed;
  std::vector<Node> others;
  KernelNotifier* notifier = nullptr;
  {
    MutexLock lock(m_);
    const auto found = files_.find(key);
    if (found == files_.end()) return;
    File& file = found->second;
    if (file.live && file.live->state.version == previous && file.live->complete()) {
      file.live->state = current;
      note_copy(key, *file.live);
    } else if (file.live && file.live->state.version != current.version) {
      retire(file, freed);
    }
    for (const auto& [number, incarnation] : file.incarnations) {
      if (number != 0) others.push_back({incarnation.slot, number, key.inode});
    }
    notifier = stopping_ ? nullptr : notifier_;
  }
  if (notifier == nullptr) return;
  for (const Node& node : others) notifier->invalidate_inode(node, -1, 0);
}

void NodeCache::remote_change(FileKey key) {
  if (tracked_.load(std::memory_order_relaxed) == 0) return;
  Freed freed;
  MutexLock lock(m_);
  const auto found = files_.find(key);
  if (found == files_.end()) return;
  stop_push(found->second);
  retire(found->second, freed);
  changed_.notify_all();
  erase_if_idle(key);
}

// What is on its way already is waited for: it comes sooner than if it were fetched again.
std::optional<Piece> NodeCache::peek(FileKey key, const FileState& state, std::uint64_t offset,
                                     std::uint32_t length) {
  if (tracked_.load(std::memory_order_relaxed) == 0) return std::nullopt;
  CopyPointer copy;  // given up after the lock
  MutexLock lock(m_);
  const auto found = files_.find(key);
  if (found == files_.end() || !found->second.live || found->second.writers > 0)
    return std::nullopt;
  copy = found->second.live;
  if (copy->state.version != state.version || offset >= state.length) return std::nullopt;
  const std::uint64_t end = offset + std::min<std::uint64_t>(length, state.length - offset);
  const Nanoseconds until = now() + options_.stall_limit;
  // A reader of small pieces may be about to jump: it is not made to wait for a whole chunk.
  if (length >= kLargeRead && copy->fill->state() == Fill::State::running)
    filler_->hurry(copy->fill, offset, end - offset);
  while (!copy->fill->has(offset, end - offset)) {
    const bool coming =
        copy->fill->state() == Fill::State::running && copy->fill->is_coming(offset, end - offset);
    if (!coming || stopping_ || now() >= until) return std::nullopt;
    changed_.wait_for(m_, 20ms);
  }
  if (copy->file->length() < end) return std::nullopt;
  if (copy->taken_over) copy->file->populate(offset, end - offset);
  return Piece{copy->file->map().subspan(offset, end - offset), copy->file};
}

Status NodeCache::warm(FileKey key, const FileState& state) {
  Freed freed;
  MutexLock lock(m_);
  if (!mount_ || stopping_) return Status(Errc::unsupported, reason_);
  if (state.length == 0) return {};
  File& file = files_[key];
  tracked_.store(files_.size(), std::memory_order_relaxed);
  ++file.busy;
  Status status;
  if (file.writers > 0) status = Status(Errc::busy, "the file is open for writing");
  if (status.ok() && file.live &&
      (file.live->state.version != state.version || file.live->ended_badly())) {
    retire(file, freed);
  }
  if (status.ok() && !file.live) status = begin_copy(key, state, file, freed);
  if (status.ok()) {
    const CopyPointer copy = file.live;
    ++copy->waiters;
    while (copy->fill->state() == Fill::State::running && !stopping_) changed_.wait_for(m_, 100ms);
    --copy->waiters;
    if (!copy->complete())
      status = Status(Errc::io, "the file changed or could not be read while it was cached");
  }
  --file.busy;
  erase_if_idle(key);
  changed_.notify_all();
  return status;
}

Incarnations::Figures NodeCache::figures() {
  MutexLock lock(m_);
  Figures figures;
  for (const auto& [key, file] : files_) figures.files += file.live ? 1 : 0;
  figures.bytes = used_;
  figures.budget_bytes = budget_;
  figures.passthrough_opens = passthrough_opens_;
  figures.filled_bytes = filler_ ? filler_->filled_bytes() : 0;
  figures.enabled = mount_ != nullptr;
  figures.reason = reason_;
  return figures;
}

std::unique_ptr<Incarnations> make_incarnations(FileIo& io, const NodeCacheOptions& options) {
  return std::make_unique<NodeCache>(io, options);
}

}  // namespace starlane::client
