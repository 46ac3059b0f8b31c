// The trees that this mount shows, by slot: volumes and published images, attached when they are
// first looked up. A slot belongs to a branch for the mount's life, so a node of a volume that was
// deleted never means a new one of its name. Any thread; `at` takes no lock.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "client/session/sessions.h"
#include "client/views/catalogue.h"
#include "common/ids.h"
#include "common/mutex.h"

namespace starlane::client {

struct View {
  std::uint16_t slot = 0;
  std::shared_ptr<Attached> attached;
  Nanoseconds since{0};  // boot clock: a listing asked before says nothing about it

  BranchId branch() const { return attached->branch; }
  ViewId view() const { return attached->view; }
  bool frozen() const { return attached->frozen; }
  FileKey file(InodeId inode) const { return {attached->branch, inode}; }
};

class Ledger;

class Views {
 public:
  /// ledger: may be null; outlives the views.
  Views(Sessions& sessions, Ledger* ledger) : sessions_(sessions), ledger_(ledger) {}

  /// Shows what the daemon before showed, each in its slot; before the first request. Branches
  /// whose attachment was ended meanwhile are in `broken`.
  struct Restored {
    std::size_t views = 0;
    std::vector<BranchId> broken;
  };
  Restored restore() SL_EXCLUDES(m_);

  /// stale_handle: no such slot, or what it showed is gone.
  Result<View*> at(std::uint16_t slot) const;
  /// Null: no such slot. A view that is gone is still found.
  View* known(std::uint16_t slot) const { return (*slots_)[slot].load(std::memory_order_acquire); }
  /// Null: not shown here. A view that is gone is still found.
  View* of(BranchId branch) const SL_EXCLUDES(m_);

  /// Attaches it unless it is; may wait for another client's lease. The volume may be another than
  /// `item` says by now.
  Result<View*> attach(const CatalogueItem& item, std::uint64_t unique) SL_EXCLUDES(m_);

  /// Detaches what the listing does not show any more; returns it.
  std::vector<View*> retire(const Listing& listing) SL_EXCLUDES(m_);

 private:
  static constexpr std::size_t kSlots = 65'536;  // slot 0 is the mount's own tree

  Result<View*> slot_for(const std::shared_ptr<Attached>& attached) SL_EXCLUDES(m_);
  View* show(std::size_t slot, const std::shared_ptr<Attached>& attached) SL_REQUIRES(m_);

  Sessions& sessions_;
  Ledger* const ledger_;
  // Written once each under m_, with release; pairs with the acquire in `at`.
  std::unique_ptr<std::array<std::atomic<View*>, kSlots>> slots_ =
      std::make_unique<std::array<std::atomic<View*>, kSlots>>();
  mutable Mutex m_;
  std::vector<std::unique_ptr<View>> views_ SL_GUARDED_BY(m_);
  std::unordered_map<BranchId, View*> by_branch_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::client
