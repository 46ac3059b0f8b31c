#include "fuse/in_flight.h"

#include "common/thread_pool.h"
#include "fuse/signals.h"

namespace starlane::fuse {
namespace {

constexpr Nanoseconds kLong = std::chrono::seconds(2);  // a local file system answers sooner

}  // namespace

InFlight::InFlight(std::function<void(std::uint64_t)> interrupt)
    : interrupt_(std::move(interrupt)), repeater_([this] { repeat(); }) {}

InFlight::~InFlight() {
  {
    MutexLock lock(m_);
    stopping_ = true;
    wake_.notify_all();
  }
  repeater_.join();
}

void InFlight::begin(std::uint64_t unique, std::uint32_t thread) {
  Shard& shard = shard_of(unique);
  MutexLock lock(shard.m);
  shard.served.try_emplace(unique, Served{thread, system_clock().boot()});
}

void InFlight::end(std::uint64_t unique) {
  Shard& shard = shard_of(unique);
  MutexLock lock(shard.m);
  shard.served.erase(unique);
}

std::optional<InFlight::Served> InFlight::find(std::uint64_t unique) {
  Shard& shard = shard_of(unique);
  MutexLock lock(shard.m);
  const auto at = shard.served.find(unique);
  if (at == shard.served.end()) return std::nullopt;
  return at->second;
}

bool InFlight::gives_up(const Served& served) {
  if (served.thread == 0) return true;
  const WaitingSignals waiting = signals_waiting_for(served.thread);
  return waiting.fatal || (waiting.caught && system_clock().boot() - served.began > kLong);
}

bool InFlight::interrupt(std::uint64_t unique) {
  const std::optional<Served> served = find(unique);
  if (!served) return false;
  {
    MutexLock lock(m_);
    interrupted_.insert(unique);
    wake_.notify_all();
  }
  if (gives_up(*served)) interrupt_(unique);
  return true;
}

void InFlight::interrupt_all() {
  MutexLock lock(m_);
  all_ = true;
  wake_.notify_all();
}

std::size_t InFlight::size() {
  std::size_t total = 0;
  for (Shard& shard : shards_) {
    MutexLock lock(shard.m);
    total += shard.served.size();
  }
  return total;
}

std::vector<std::uint64_t> InFlight::still_interrupted() {
  std::vector<std::uint64_t> found;
  if (all_) {
    for (Shard& shard : shards_) {
      MutexLock lock(shard.m);
      for (const auto& [unique, served] : shard.served) found.push_back(unique);
    }
    return found;
  }
  std::erase_if(interrupted_, [this](std::uint64_t unique) { return !find(unique); });
  found.assign(interrupted_.begin(), interrupted_.end());
  return found;
}

void InFlight::repeat() {
  name_this_thread("fuse-interrupt");
  MutexLock lock(m_);
  while (!stopping_) {
    const std::vector<std::uint64_t> uniques = still_interrupted();
    const bool all = all_;
    m_.unlock();
    for (const std::uint64_t unique : uniques) {
      const std::optional<Served> served = all ? Served{} : find(unique);
      if (served && gives_up(*served)) interrupt_(unique);
    }
    m_.lock();
    if (stopping_) break;
    if (uniques.empty() && !all_) {
      while (!stopping_ && !all_ && interrupted_.empty()) wake_.wait(m_);
    } else {
      wake_.wait_for(m_, std::chrono::milliseconds(50));
    }
  }
}

}  // namespace starlane::fuse
