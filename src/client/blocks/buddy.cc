#include "client/blocks/buddy.h"

#include "common/status.h"

namespace starlane::client {

Buddy::Buddy(std::uint32_t units, unsigned top_order) : top_order_(top_order) {
  SL_CHECK(top_order <= kMaxOrder);
  first_.fill(kNone);
  units = units >> top_order << top_order;
  links_.resize(units);
  free_order_.assign(units, kNotFree);
  free_units_ = units;
  for (std::uint32_t unit = units; unit != 0;) {
    unit -= std::uint32_t{1} << top_order;
    push(unit, top_order);
  }
}

std::optional<std::uint32_t> Buddy::take(unsigned order) {
  unsigned from = order;
  while (from <= top_order_ && first_[from] == kNone) ++from;
  if (from > top_order_) return std::nullopt;
  const std::uint32_t unit = first_[from];
  unlink(unit, from);
  while (from > order) {
    --from;
    push(unit + (std::uint32_t{1} << from), from);
  }
  free_units_ -= std::uint64_t{1} << order;
  return unit;
}

void Buddy::give(std::uint32_t unit, unsigned order) {
  free_units_ += std::uint64_t{1} << order;
  while (order < top_order_) {
    const std::uint32_t buddy = unit ^ (std::uint32_t{1} << order);
    if (free_order_[buddy] != order) break;
    unlink(buddy, order);
    unit &= ~(std::uint32_t{1} << order);
    ++order;
  }
  push(unit, order);
}

void Buddy::push(std::uint32_t unit, unsigned order) {
  free_order_[unit] = static_cast<std::uint8_t>(order);
  links_[unit] = {first_[order], kNone};
  if (first_[order] != kNone) links_[first_[order]].previous = unit;
  first_[order] = unit;
}

void Buddy::unlink(std::uint32_t unit, unsigned order) {
  const Links links = links_[unit];
  if (links.previous == kNone) {
    first_[order] = links.next;
  } else {
    links_[links.previous].next = links.next;
  }
  if (links.next != kNone) links_[links.next].previous = links.previous;
  free_order_[unit] = kNotFree;
}

}  // namespace starlane::client
