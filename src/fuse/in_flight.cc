#include "fuse/in_flight.h"

#include "common/thread_pool.h"

namespace starlane::fuse {

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

void InFlight::begin(std::uint64_t unique) {
  Shard& shard = shard_of(unique);
  MutexLock lock(shard.m);
  shard.uniques.insert(unique);
}

void InFlight::end(std::uint64_t unique) {
  Shard& shard = shard_of(unique);
  MutexLock lock(shard.m);
  shard.uniques.erase(unique);
}

bool InFlight::known(std::uint64_t unique) {
  Shard& shard = shard_of(unique);
  MutexLock lock(shard.m);
  return shard.uniques.contains(unique);
}

bool InFlight::interrupt(std::uint64_t unique) {
  if (!known(unique)) return false;
  {
    MutexLock lock(m_);
    interrupted_.insert(unique);
    wake_.notify_all();
  }
  interrupt_(unique);
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
    total += shard.uniques.size();
  }
  return total;
}

std::vector<std::uint64_t> InFlight::still_interrupted() {
  std::vector<std::uint64_t> found;
  if (all_) {
    for (Shard& shard : shards_) {
      MutexLock lock(shard.m);
      found.insert(found.end(), shard.uniques.begin(), shard.uniques.end());
    }
    return found;
  }
  std::erase_if(interrupted_, [this](std::uint64_t unique) { return !known(unique); });
  found.assign(interrupted_.begin(), interrupted_.end());
  return found;
}

void InFlight::repeat() {
  name_this_thread("fuse-interrupt");
  MutexLock lock(m_);
  while (!stopping_) {
    const std::vector<std::uint64_t> uniques = still_interrupted();
    m_.unlock();
    for (const std::uint64_t unique : uniques) interrupt_(unique);
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
