// What the client does about passing reasons (a server away, busy, slow): it waits and tries again,
// for ever, with one log line when that begins to take long and one when it is over. Values of one
// thread.
#pragma once
#include <functional>
#include <string_view>

#include "client/blocks/interrupts.h"
#include "common/rng.h"

namespace starlane::client {

/// The call may succeed if it is made again later.
constexpr bool is_passing(Errc code) {
  return code == Errc::unavailable || code == Errc::timeout || code == Errc::busy ||
         code == Errc::conflict;
}

class Patience {
 public:
  /// what: for the log, e.g. "get block". The text must outlive this.
  Patience(const Interrupts::Scope& scope, std::string_view what) : scope_(scope), what_(what) {}
  ~Patience();
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

  /// Waits before the next try: 5 ms at first, doubling up to 1 s, spread at random. interrupted:
  /// give up.
  Status wait(const Status& reason);
  int tries() const { return tries_; }

 private:
  const Interrupts::Scope& scope_;
  const std::string_view what_;
  int tries_ = 0;
  bool logged_ = false;
  Nanoseconds waited_{0};
};

/// Runs `call` until its outcome is no passing one.
Status with_patience(const Interrupts::Scope& scope, std::string_view what,
                     const std::function<Status()>& call);

/// How long one try of a call may take.
Deadline try_deadline(int tries);

}  // namespace starlane::client
