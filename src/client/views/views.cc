#include "client/views/views.h"

#include "client/takeover/records.h"

namespace starlane::client {

Result<View*> Views::at(std::uint16_t slot) const {
  View* view = known(slot);
  if (view == nullptr) return {Errc::stale_handle, "no such tree in this mount"};
  if (view->attached->gone()) return {Errc::stale_handle, "the volume is not there any more"};
  return view;
}

View* Views::of(BranchId branch) const {
  MutexLock lock(m_);
  const auto at = by_branch_.find(branch);
  return at == by_branch_.end() ? nullptr : at->second;
}

Result<View*> Views::attach(const CatalogueItem& item, std::uint64_t unique) {
  if (View* known = of(item.branch); known != nullptr && !known->attached->gone()) return known;
  return slot_for(SL_TRY(sessions_.attach(item.target, unique)));
}

Result<View*> Views::slot_for(const std::shared_ptr<Attached>& attached) {
  MutexLock lock(m_);
  const auto at = by_branch_.find(attached->branch);
  if (at != by_branch_.end() && at->second->attached == attached) return at->second;
  const std::size_t slot = views_.size() + 1;
  if (slot >= kSlots)
    return {Errc::no_memory, "this mount has shown 65 535 trees: mount again to see more"};
  if (ledger_ != nullptr) {
    const ViewRecord record{attached->target, attached->branch, attached->view, attached->frozen};
    SL_TRY(ledger_->put({Ledger::Kind::view, slot}, encode(record)));
  }
  return show(slot, attached);
}

View* Views::show(std::size_t slot, const std::shared_ptr<Attached>& attached) {
  views_.push_back(std::make_unique<View>(
      View{static_cast<std::uint16_t>(slot), attached, sessions_.clock().boot()}));
  View* view = views_.back().get();
  by_branch_[attached->branch] = view;
  (*slots_)[slot].store(view, std::memory_order_release);
  return view;
}

Views::Restored Views::restore() {
  Restored restored;
  if (ledger_ == nullptr) return restored;
  const std::vector<Ledger::Entry> entries = ledger_->all(Ledger::Kind::view);
  std::unordered_map<BranchId, std::uint64_t> newest;  // slot
  for (const Ledger::Entry& entry : entries)
    if (const auto record = decode_view(entry.value)) newest[record->branch] = entry.key.a;
  for (const Ledger::Entry& entry : entries) {
    const auto record = decode_view(entry.value);
    if (!record || entry.key.a == 0 || entry.key.a >= kSlots || entry.key.b != 0) continue;
    // Once detached, a branch that came back got a slot of its own; the old one shows nothing.
    Sessions::Taken taken;
    if (newest[record->branch] == entry.key.a) {
      taken = sessions_.take_over(record->target, record->branch, record->view, record->frozen);
      if (!taken.continued) restored.broken.push_back(record->branch);
    } else {
      taken.attached = Sessions::gone(record->target, record->branch, record->view, record->frozen);
    }
    MutexLock lock(m_);
    // Numbers of slots follow from how many there are.
    while (views_.size() + 1 < entry.key.a) views_.push_back(nullptr);
    show(entry.key.a, taken.attached);
    ++restored.views;
  }
  return restored;
}

std::vector<View*> Views::retire(const Listing& listing) {
  std::vector<View*> gone;
  {
    MutexLock lock(m_);
    for (const auto& [branch, view] : by_branch_) {
      if (view->attached->gone() || view->since >= listing.asked_at) continue;
      const CatalogueItem* item = listing.find(view->attached->target);
      if (item == nullptr || item->branch != branch) gone.push_back(view);
    }
  }
  for (View* view : gone) sessions_.detach(view->branch());
  return gone;
}

}  // namespace starlane::client
