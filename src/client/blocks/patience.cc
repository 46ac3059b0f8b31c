#include "client/blocks/patience.h"

#include <algorithm>

#include "common/log.h"

namespace starlane::client {
namespace {

constexpr Nanoseconds kLongWait = std::chrono::seconds(2);

/// 3/4 to 5/4 of `wait`: so that clients of a server that comes back do not arrive together.
Nanoseconds spread(Nanoseconds wait) {
  thread_local Rng rng(random_seed());
  return wait * 3 / 4 + Nanoseconds(rng.below(static_cast<std::uint64_t>(wait.count()) / 2 + 1));
}

}  // namespace

Patience::~Patience() {
  if (logged_) SL_LOG(info, "event=server_wait_over what=\"{}\" tries={}", what_, tries_);
}

Status Patience::wait(const Status& reason) {
  const Nanoseconds wait = spread(Milliseconds(5) * (1 << std::min(tries_, 8)));
  ++tries_;
  waited_ += wait;
  if (!logged_ && waited_ > kLongWait) {
    logged_ = true;
    SL_LOG(warn, "event=server_wait what=\"{}\" reason=\"{}\"", what_, reason.to_string());
  }
  return scope_.sleep(std::min<Nanoseconds>(wait, std::chrono::seconds(1)));
}

Status with_patience(const Interrupts::Scope& scope, std::string_view what,
                     const std::function<Status()>& call) {
  Patience patience(scope, what);
  for (;;) {
    Status status = call();
    if (!is_passing(status.code())) return status;
    SL_TRY(patience.wait(status));
  }
}

Deadline try_deadline(int tries) {
  // Longer with each try: a slow wire must get through at last.
  return Deadline::after(std::chrono::seconds(10) * (1 << std::min(tries, 3)));
}

}  // namespace starlane::client
