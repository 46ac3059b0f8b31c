#include <algorithm>
#include <chrono>
#include <thread>

#include "common/rng.h"
#include "kv/engine.h"

namespace starlane::kv {
namespace {

/// The first retry is at once: an engine answers conflict when the winner is visible. Later ones
/// spread out.
void back_off(int lost) {
  if (lost < 2) return;
  thread_local Rng rng(random_seed());
  const auto longest_us = std::uint64_t{50} << std::min(lost, 9);
  std::this_thread::sleep_for(std::chrono::microseconds(rng.below(longest_us)));
}

}  // namespace

Status run(Engine& engine, Durability durability, const std::function<Status(Transaction&)>& body,
           int attempts) {
  Status status(Errc::conflict, "a transaction needs at least one attempt");
  for (int lost = 0; lost < attempts; ++lost) {
    back_off(lost);
    const auto transaction = engine.begin();
    status = body(*transaction);
    if (status.ok()) status = transaction->commit(durability);
    if (status.code() != Errc::conflict) return status;
  }
  return status.with("lost " + std::to_string(attempts) + " times in a row");
}

}  // namespace starlane::kv
