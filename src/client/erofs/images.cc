#include "client/erofs/images.h"

#include <algorithm>

namespace starlane::client::erofs {

Result<Images::Made> Images::get(std::uint16_t slot, Keep keep, const Make& make,
                                 const std::function<Status()>& check) {
  if (Made image = known(slot, keep)) return image;
  const auto ask = [&]() -> Result<Made> {
    if (Made already = known(slot, keep)) return already;
    const Made made = SL_TRY(make(make_room()));
    learn(slot, made);
    return made;
  };
  const auto joinable = [](std::uint64_t) { return true; };
  Result<Made> made = flights_.fly(slot, 0, joinable, ask, check);
  if (made.ok()) known(slot, keep);
  return made;
}

Images::Made Images::known(std::uint16_t slot, Keep keep) {
  MutexLock lock(m_);
  const auto at = known_.find(slot);
  if (at == known_.end() || !at->second.image) return nullptr;
  at->second.kept |= keep == Keep::until_closed;
  return at->second.image;
}

std::uint64_t Images::make_room() {
  MutexLock lock(m_);
  std::erase_if(known_, [](const auto& one) { return one.second.opens <= 0 && !one.second.kept; });
  std::uint64_t taken = 0;
  for (const auto& [slot, one] : known_)
    if (one.image) taken += one.image->bytes().size();
  return budget_bytes_ - std::min(taken, budget_bytes_);
}

void Images::learn(std::uint16_t slot, const Made& image) {
  MutexLock lock(m_);
  known_[slot].image = image;
}

void Images::opened(std::uint16_t slot) {
  MutexLock lock(m_);
  ++known_[slot].opens;
}

void Images::closed(std::uint16_t slot) {
  MutexLock lock(m_);
  const auto at = known_.find(slot);
  if (at != known_.end() && --at->second.opens <= 0) known_.erase(at);
}

}  // namespace starlane::client::erofs
