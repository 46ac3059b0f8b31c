// A store that is full, of what a volume keeps in its trash: that goes before a write fails, the
// oldest first. Any thread; blocks. Lock: m_, never held over a call.
#pragma once
#include <unordered_map>

#include "client/blocks/interrupts.h"
#include "common/bytes.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/mutex.h"
#include "proto/meta_service.h"

namespace starlane::client {

class Reclaim {
 public:
  struct Options {
    std::uint64_t bytes = 256_MiB;                   // thrown away at once, about
    Nanoseconds again{std::chrono::seconds(2)};      // not before, while blocks are being removed
    Nanoseconds patience{std::chrono::seconds(15)};  // for their removal
    Nanoseconds pause{Milliseconds(250)};
  };
  Reclaim(MetaService& meta, const Options& options) : meta_(meta), options_(options) {}

  /// After no_space: waits a little, and says whether to try again. False: nothing is on its way
  /// out of the store.
  bool worth_another_try(BranchId branch, const Interrupts::Scope& scope) SL_EXCLUDES(m_);

 private:
  bool begin_look(BranchId branch) SL_EXCLUDES(m_);
  bool look(BranchId branch) SL_EXCLUDES(m_);
  bool is_worth_it(BranchId branch) SL_EXCLUDES(m_);
  Result<bool> throw_away(BranchId branch);
  Result<std::uint64_t> held_bytes();

  struct Branch {
    Nanoseconds looked{0};
    Nanoseconds moved{0};  // when space was last seen to be on its way; boot times; 0: never
    bool looking = false;
    std::uint64_t held = 0;
  };
  MetaService& meta_;
  const Options options_;
  Mutex m_;
  std::unordered_map<BranchId, Branch> branches_ SL_GUARDED_BY(m_);  // as many as are attached
};

}  // namespace starlane::client
