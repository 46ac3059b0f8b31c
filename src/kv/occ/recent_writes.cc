#include "kv/occ/recent_writes.h"

#include <algorithm>

namespace starlane::kv::occ {
namespace {

constexpr std::size_t kLookedThrough = 100'000;  // about a millisecond

/// What a key's node and its event cost, roughly.
std::size_t cost_of(std::string_view key) { return key.size() + 112; }

}  // namespace

void RecentWrites::record(std::string_view key, Version at, bool exists) {
  auto it = rows_.find(key);
  if (it == rows_.end()) it = rows_.emplace(std::string(key), Write()).first;
  const bool counted = it->second.at == at;  // The same transaction wrote it before.
  it->second = {at, exists};
  if (counted) return;
  events_.push_back({&it->first, at});
  bytes_ += cost_of(key);
}

const RecentWrites::Write* RecentWrites::find(std::string_view key) const {
  const auto it = rows_.find(key);
  return it == rows_.end() ? nullptr : &it->second;
}

Version RecentWrites::row_in(std::string_view first, std::string_view last, Version since) const {
  std::size_t left = kLookedThrough;
  for (auto event = events_.rbegin(); event != events_.rend() && event->at > since; ++event) {
    if (left-- == 0) return events_.back().at;
    if (*event->key < first || *event->key >= last) continue;
    if (const Write* newest = find(*event->key); newest->exists) return newest->at;
  }
  return 0;
}

void RecentWrites::forget_first() {
  const Event event = events_.front();
  events_.pop_front();
  bytes_ -= cost_of(*event.key);
  floor_ = std::max(floor_, event.at);
  const auto it = rows_.find(*event.key);
  if (it->second.at == event.at) rows_.erase(it);
}

void RecentWrites::trim(Version oldest, Version visible) {
  while (!events_.empty() && events_.front().at <= oldest) forget_first();
  while (bytes_ > limit_bytes_ && !events_.empty() && events_.front().at <= visible) forget_first();
}

}  // namespace starlane::kv::occ
