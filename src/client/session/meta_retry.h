// The one policy for calls to the metadata server that did not answer or could not do it now. A
// passing reason is waited for, for ever unless the application is signalled or the client stops;
// what the server refused is returned. Any thread.
#pragma once
#include <cstdint>
#include <functional>

#include "client/session/signals.h"
#include "common/status.h"
#include "proto/call.h"
#include "proto/meta_service.h"

namespace starlane::client {

struct RetryOptions {
  Milliseconds first_wait{2};
  Milliseconds longest_wait{1000};
  Milliseconds attempt_timeout{
      10'000};  // of one attempt; then it is asked again, under the same request number
  int conflict_attempts = 60;  // then the race is lost: busy
};

class MetaRetry {
 public:
  MetaRetry(MetaService& meta, Signals& signals, RetryOptions options)
      : meta_(meta), signals_(signals), options_(options) {}

  /// unavailable, timeout: waits with back-off and asks again, in the log. conflict, busy:
  /// back-off, at most conflict_attempts. Everything else, `fenced` too, is the caller's. `unique`
  /// as in Signals.
  template <typename Request, typename Reply>
  Status call(Status (MetaService::*method)(const Call&, const Request&, Reply*), const Call& call,
              const Request& request, Reply* reply, std::uint64_t unique) {
    return run(
        [&](Deadline deadline) {
          Call attempt = call;
          attempt.deadline = deadline;
          reply->Clear();
          return (meta_.*method)(attempt, request, reply);
        },
        unique);
  }

  Status run(const std::function<Status(Deadline)>& attempt, std::uint64_t unique);
  Signals& signals() { return signals_; }

 private:
  Nanoseconds wait_before(int attempt) const;

  MetaService& meta_;
  Signals& signals_;
  const RetryOptions options_;
};

}  // namespace starlane::client
