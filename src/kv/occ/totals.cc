#include "kv/occ/totals.h"

#include <algorithm>

#include "kv/occ/intent.h"

namespace starlane::kv::occ {

Totals::Entry& Totals::pin(const std::string& key) {
  const auto it = entries_.try_emplace(key).first;
  it->second.key = &it->first;
  ++it->second.pins;
  return it->second;
}

void Totals::set(Entry& entry, const Total& total, Version at) {
  entry.total = total;
  entry.at = at;
  if (entry.in_group) return;
  entry.in_group = true;
  group_.push_back(&entry);
}

std::vector<Totals::Changed> Totals::take_group() {
  std::vector<Changed> out;
  out.reserve(group_.size());
  for (Entry* entry : group_) {
    out.push_back({*entry->key, entry->total});
    entry->in_group = false;
  }
  group_.clear();
  return out;
}

void Totals::trim(Version visible) {
  if (entries_.size() <= limit_) return;
  // Half of it at once, so that the walk is paid for by as many new entries.
  std::size_t surplus = entries_.size() - limit_ / 2;
  for (auto it = entries_.begin(); it != entries_.end() && surplus > 0;) {
    const Entry& entry = it->second;
    const bool idle = entry.pins == 0 && !entry.in_group && entry.at <= visible;
    it = idle ? (--surplus, entries_.erase(it)) : std::next(it);
  }
}

namespace {

Result<Total> added(const Total& total, const TotalChange& change) {
  Total sum{TotalKind::sum, 0};
  if (__builtin_add_overflow(total.value, change.amount, &sum.value))
    return Status(Errc::range, "an accumulator would pass 64 bits");
  if (change.limit && change.amount > 0 && sum.value > *change.limit)
    return Status(Errc::quota, "the sum would exceed its limit");
  return sum;
}

}  // namespace

Result<Total> changed(const Total& total, const TotalChange& change) {
  if (change.what == TotalChange::What::clear) return Total();
  const bool adds = change.what == TotalChange::What::add;
  if (total.kind == (adds ? TotalKind::greatest : TotalKind::sum))
    return Status(Errc::invalid, "an accumulator was used both as a sum and as a greatest value");
  if (adds) return added(total, change);
  const bool first = total.kind == TotalKind::none;
  return Total{TotalKind::greatest, first ? change.amount : std::max(total.value, change.amount)};
}

}  // namespace starlane::kv::occ
