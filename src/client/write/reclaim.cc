#include "client/write/reclaim.h"

#include <utility>

#include "client/blocks/patience.h"

namespace starlane::client {
namespace {

constexpr std::uint32_t kLooked = 256;  // entries that one look considers

}  // namespace

bool Reclaim::worth_another_try(BranchId id, const Interrupts::Scope& scope) {
  return (begin_look(id) ? look(id) : is_worth_it(id)) && scope.sleep(options_.pause).ok();
}

/// Whether the caller is the one that looks now.
bool Reclaim::begin_look(BranchId id) {
  const Nanoseconds now = system_clock().boot();
  MutexLock lock(m_);
  Branch& branch = branches_[id];
  if (branch.looking || (branch.looked != Nanoseconds(0) && now - branch.looked < options_.again))
    return false;
  branch.looking = true;
  branch.looked = now;
  return true;
}

bool Reclaim::look(BranchId id) {
  const Result<bool> thrown = throw_away(id);
  const Result<std::uint64_t> held = held_bytes();
  {
    MutexLock lock(m_);
    Branch& branch = branches_[id];
    branch.looking = false;
    // What others threw away helps as well, while it becomes less.
    const bool others = held.ok() && std::exchange(branch.held, *held) != *held && *held != 0;
    if (others || (thrown.ok() && *thrown)) branch.moved = system_clock().boot();
  }
  return is_worth_it(id);
}

bool Reclaim::is_worth_it(BranchId id) {
  MutexLock lock(m_);
  const Branch& branch = branches_[id];
  if (branch.looking) return true;  // another write asked first: its answer is this one's, too
  return branch.moved != Nanoseconds(0) && system_clock().boot() - branch.moved < options_.patience;
}

/// False: the trash is empty.
Result<bool> Reclaim::throw_away(BranchId id) {
  Call call;
  call.deadline = try_deadline(0);
  pb::TrashListRequest look;
  look.set_branch(id.value);
  look.set_limit(kLooked);
  pb::TrashListReply oldest;
  SL_TRY(meta_.trash_list(call, look, &oldest));
  pb::TrashEmptyRequest request;
  request.set_branch(id.value);
  std::uint64_t bytes = 0;
  for (const pb::TrashEntry& entry : oldest.entries()) {
    if (bytes >= options_.bytes) break;
    bytes += entry.attributes().bytes();
    *request.add_items() = entry.item();
  }
  if (request.items().empty()) return false;
  pb::TrashEmptyReply reply;
  SL_TRY(meta_.trash_empty(call, request, &reply));
  return reply.emptied() > 0;
}

/// Freed and not yet removed, in all volumes.
Result<std::uint64_t> Reclaim::held_bytes() {
  Call call;
  call.deadline = try_deadline(0);
  pb::ListVolumesReply reply;
  SL_TRY(meta_.volume_list(call, {}, &reply));
  std::uint64_t bytes = 0;
  for (const pb::Volume& volume : reply.volumes()) bytes += volume.held_bytes();
  return bytes;
}

}  // namespace starlane::client
