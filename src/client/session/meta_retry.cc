#include "client/session/meta_retry.h"

#include <algorithm>

#include "common/log.h"

namespace starlane::client {
namespace {

bool no_answer(Errc code) { return code == Errc::unavailable || code == Errc::timeout; }
bool lost_a_race(Errc code) { return code == Errc::conflict || code == Errc::busy; }

/// Says that the server is away after half a second, then every ten seconds, and when it is over.
class AwayLog {
 public:
  void away(const Status& status) {
    const Nanoseconds now = system_clock().boot();
    if (since_ == Nanoseconds::zero()) since_ = now;
    if (now - since_ < Milliseconds(500)) return;
    if (said_ != Nanoseconds::zero() && now - said_ < std::chrono::seconds(10)) return;
    said_ = now;
    SL_LOG(warn, "event=meta_away waited_ms={} cause=\"{}\"", waited_ms(now), status.to_string());
  }
  void back() const {
    if (said_ != Nanoseconds::zero())
      SL_LOG(info, "event=meta_back waited_ms={}", waited_ms(system_clock().boot()));
  }

 private:
  std::int64_t waited_ms(Nanoseconds now) const {
    return std::chrono::duration_cast<Milliseconds>(now - since_).count();
  }
  Nanoseconds since_{0};
  Nanoseconds said_{0};
};

}  // namespace

Nanoseconds MetaRetry::wait_before(int attempt) const {
  const Milliseconds doubled = options_.first_wait * (1 << std::min(attempt, 12));
  return std::min(doubled, options_.longest_wait);
}

Status MetaRetry::run(const std::function<Status(Deadline)>& attempt, std::uint64_t unique) {
  AwayLog log;
  int unanswered = 0;
  int races = 0;
  while (true) {
    Status status = attempt(Deadline::after(options_.attempt_timeout));
    if (no_answer(status.code())) {
      log.away(status);
      SL_TRY(signals_.sleep(unique, wait_before(unanswered++)));
      continue;
    }
    if (lost_a_race(status.code()) && races + 1 < options_.conflict_attempts) {
      // Short at first, for a lost race is over at once; spread, so that equals do not meet again.
      const auto spread = Nanoseconds(system_clock().boot().count() % 1'000'000);
      const Nanoseconds pause = std::min<Nanoseconds>(wait_before(races++), Milliseconds(100));
      SL_TRY(signals_.sleep(unique, pause / 2 + spread));
      continue;
    }
    log.back();
    if (status.code() == Errc::conflict) return Status(Errc::busy, status.text());
    return status;
  }
}

}  // namespace starlane::client
