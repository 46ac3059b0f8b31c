// Equal questions asked at the same time are asked once. Any thread; who joins waits for the first
// asker's answer.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>

#include "common/clock.h"
#include "common/mutex.h"
#include "common/status.h"

namespace starlane::client {

template <typename Key, typename Answer, typename Hash = std::hash<Key>>
class Flights {
 public:
  /// ask: answers for everyone who joins. may_join: called with what the asker's `order` was, under
  /// this object's lock; false: that question was asked too early, ask again. A joiner of an asker
  /// that was interrupted asks itself; its own wait ends when `check` fails.
  Result<Answer> fly(const Key& key, std::uint64_t order,
                     const std::function<bool(std::uint64_t)>& may_join,
                     const std::function<Result<Answer>()>& ask,
                     const std::function<Status()>& check) {
    while (true) {
      auto [flight, mine] = join(key, order, may_join);
      if (mine) return land(key, flight, ask());
      if (!landed(*flight)) {
        SL_TRY(check());
        continue;
      }
      if (flight->answer->code() != Errc::interrupted) return *flight->answer;
    }
  }

 private:
  struct Flight {
    std::uint64_t order = 0;
    bool landed = false;
    std::unique_ptr<Result<Answer>> answer;
  };

  std::pair<std::shared_ptr<Flight>, bool> join(
      const Key& key, std::uint64_t order, const std::function<bool(std::uint64_t)>& may_join) {
    MutexLock lock(m_);
    std::shared_ptr<Flight>& flight = flying_[key];
    if (flight && !flight->landed && may_join(flight->order)) return {flight, false};
    flight = std::make_shared<Flight>();  // one that may not be joined lands without being known
    flight->order = order;
    return {flight, true};
  }

  /// Waits a while; false: not yet. The answer of a landed flight does not change any more.
  bool landed(const Flight& flight) {
    MutexLock lock(m_);
    if (!flight.landed) landed_.wait_for(m_, Milliseconds(100));
    return flight.landed;
  }

  Result<Answer> land(const Key& key, const std::shared_ptr<Flight>& flight,
                      Result<Answer> answer) {
    MutexLock lock(m_);
    flight->answer = std::make_unique<Result<Answer>>(answer);
    flight->landed = true;
    const auto at = flying_.find(key);
    if (at != flying_.end() && at->second == flight) flying_.erase(at);
    landed_.notify_all();
    return answer;
  }

  Mutex m_;
  CondVar landed_;
  std::unordered_map<Key, std::shared_ptr<Flight>, Hash> flying_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::client
