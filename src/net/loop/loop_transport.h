// A transport inside one process, for tests: `loop:name` reaches who listens under that name on the
// same object. It can lose, delay and repeat whole calls by seed, as a network and a retrying
// client do. Any thread; outlives its connections and listeners.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "common/mutex.h"
#include "common/rng.h"
#include "net/loop/courier.h"
#include "net/transport.h"

namespace starlane::net {

/// One in so many calls (or connects) meets each fault; 0: none does. The handshake is spared.
struct LoopFaults {
  std::uint64_t refuse_connect = 0;
  std::uint64_t lose_request = 0;  // the connection breaks, nothing arrived
  std::uint64_t late_request =
      0;                         // the connection breaks, and the request is served some time later
  std::uint64_t lose_reply = 0;  // served, and the connection breaks before the answer
  std::uint64_t repeat_request =
      0;                    // served again, unseen, when the connection is used or closed next
  std::uint64_t delay = 0;  // the request arrives later
  Milliseconds longest_delay{10};
};

class LoopListening;

class LoopTransport final : public Transport {
 public:
  explicit LoopTransport(std::uint64_t seed = 1) : rng_(seed) {}

  bool serves(const Endpoint& endpoint) const override {
    return endpoint.kind == Endpoint::Kind::loop;
  }
  Result<std::unique_ptr<Connection>> connect(const Endpoint& endpoint, Deadline deadline) override;
  Result<std::unique_ptr<Listener>> listen(const Endpoint& endpoint) override;

  /// From the next call on.
  void set_faults(const LoopFaults& faults) SL_EXCLUDES(m_);
  /// How many calls have met a fault so far.
  std::uint64_t faults_met() const SL_EXCLUDES(m_);

  enum class Fate { served, request_lost, request_late, reply_lost, repeated, delayed };
  /// What happens to a call, and by how much it is delayed if it is. For the transport's own
  /// connections.
  Fate draw_fate(Nanoseconds* delay) SL_EXCLUDES(m_);
  Courier& courier() { return courier_; }
  void forget(const std::string& name, const LoopListening* listening) SL_EXCLUDES(m_);

 private:
  mutable Mutex m_;
  Rng rng_ SL_GUARDED_BY(m_);
  LoopFaults faults_ SL_GUARDED_BY(m_);
  std::uint64_t faults_met_ SL_GUARDED_BY(m_) = 0;
  std::map<std::string, std::shared_ptr<LoopListening>> listening_ SL_GUARDED_BY(m_);
  Courier courier_;
};

}  // namespace starlane::net
