#include "wire/store_syncs.h"

#include <algorithm>

namespace starlane::wire {

StoreSyncs::StoreSyncs(Find find, const Options& options)
    : find_(std::move(find)), options_(options) {}

StoreSyncs::Outcome StoreSyncs::sync(const pb::ClusterMap& map) {
  Outcome outcome;
  std::vector<std::pair<TargetId, std::shared_ptr<BlockService>>> here;
  std::vector<TargetId> asked;
  for (const pb::Target& target : map.targets()) {
    const TargetId id(target.id());
    Place place = find_(target.endpoint());
    if (place.service != nullptr && place.here)
      here.emplace_back(id, std::move(place.service));
    else if (place.service != nullptr && start(id, std::move(place.service)))
      asked.push_back(id);
    else
      outcome.left_out.push_back(id);
  }
  for (const auto& [id, service] : here) keep(id, service->sync({}, id), outcome);
  wait_for(asked);
  MutexLock lock(m_);
  for (const TargetId id : asked) {
    const Asked& one = asked_.at(id);
    keep(id, one.running ? Status(Errc::timeout, "no answer yet") : one.status, outcome);
  }
  return outcome;
}

/// False: an earlier call is still under way, whose answer would say nothing of what came later.
bool StoreSyncs::start(TargetId target, std::shared_ptr<BlockService> service) {
  {
    MutexLock lock(m_);
    if (std::exchange(asked_[target].running, true)) return false;
  }
  if (pool_ == nullptr)
    pool_ =
        std::make_unique<ThreadPool>(ThreadPool::Options{"store-sync", options_.threads, 65'536});
  pool_->submit([this, target, service = std::move(service)] {
    Call call;
    call.deadline = Deadline::after(options_.call_timeout);
    Status status = service->sync(call, target);
    MutexLock lock(m_);
    asked_.at(target) = {false, std::move(status)};
    answered_.notify_all();
  });
  return true;
}

void StoreSyncs::wait_for(const std::vector<TargetId>& asked) {
  const Nanoseconds until = system_clock().boot() + options_.patience;
  MutexLock lock(m_);
  const auto is_running = [&](TargetId id) SL_REQUIRES(m_) { return asked_.at(id).running; };
  const auto any_running = [&]() SL_REQUIRES(m_) {
    return std::any_of(asked.begin(), asked.end(), is_running);
  };
  while (any_running()) {
    const Nanoseconds left = until - system_clock().boot();
    if (left <= Nanoseconds::zero()) return;
    answered_.wait_for(m_, left);
  }
}

void StoreSyncs::keep(TargetId target, const Status& status, Outcome& outcome) {
  switch (status.code()) {
    case Errc::ok:
      return;
    case Errc::unavailable:
    case Errc::timeout:
    case Errc::busy:
    case Errc::not_found:  // its server no longer has it
      outcome.left_out.push_back(target);
      return;
    default:
      if (outcome.failure.ok())
        outcome.failure = status.with("target " + std::to_string(target.value));
  }
}

}  // namespace starlane::wire
