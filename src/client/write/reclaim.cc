#include "client/write/reclaim.h"

#include <utility>

#include "client/blocks/patience.h"

namespace starlane::client {
namespace {

constexpr std::uint32_t kLooked = 256;  // entries that one look considers

}  // namespace

bool Reclaim::worth_another_try(BranchId id, const Interrupts::Scope& scope) {
  bool ask = false;
  {
    const Nanoseconds now = system_clock().boot();
    MutexLock lock(m_);
    Branch& branch = branches_[id];
    ask = branch.asked == Nanoseconds(0) || now - branch.asked >= options_.again;
    if (ask) branch.asked = now;
  }
  const Result<bool> thrown = ask ? throw_away(id) : false;
  const Result<std::uint64_t> held = ask ? held_bytes() : std::uint64_t{0};
  {
    const Nanoseconds now = system_clock().boot();
    MutexLock lock(m_);
    Branch& branch = branches_[id];
    if (thrown.ok() && *thrown) branch.moved = now;
    // What others threw away helps as well, while it becomes less.
    if (ask && held.ok() && std::exchange(branch.held, *held) != *held && *held != 0)
      branch.moved = now;
    if (branch.moved == Nanoseconds(0) || now - branch.moved >= options_.patience) return false;
  }
  return scope.sleep(options_.pause).ok();
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
