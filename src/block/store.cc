#include "block/store.h"

#include <thread>

namespace starlane::block {

Store::Store(std::size_t buffers) : buffers_({.buffer_bytes = kMostRecord, .limit = buffers}) {}

Result<std::unique_ptr<Store>> Store::open(StoreOptions options) {
  if (options.buffers == 0) return Status(Errc::invalid, "a block store needs a buffer");
  std::unique_ptr<Store> store(new Store(options.buffers));
  std::vector<Status> results(options.targets.size());
  std::vector<std::unique_ptr<Target>> opened(options.targets.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < options.targets.size(); ++i) {
    if (!store->targets_.try_emplace(options.targets[i].id, nullptr).second) {
      results[i] =
          Status(Errc::invalid,
                 "block target " + std::to_string(options.targets[i].id.value) + " is given twice");
      continue;
    }
    threads.emplace_back([&, i] {
      auto target = Target::open(std::move(options.targets[i]), options.tuning, options.cluster,
                                 store->buffers_);
      if (target.ok())
        opened[i] = std::move(*target);
      else
        results[i] = target.status();
    });
  }
  for (auto& thread : threads) thread.join();
  for (const Status& status : results) {
    if (!status.ok()) return status;
  }
  for (auto& target : opened) {
    const TargetId id = target->info().target;
    store->targets_[id] = std::move(target);
  }
  return store;
}

Result<Target*> Store::find(const Call& call, TargetId id) const {
  if (call.deadline.passed()) return Status(Errc::timeout, "the deadline has passed");
  const auto it = targets_.find(id);
  if (it != targets_.end()) return it->second.get();
  return Status(Errc::not_found,
                "block target " + std::to_string(id.value) + " is not served here");
}

Status Store::put(const Call& call, const PutBlock& request, BulkSource& data) {
  return SL_TRY(find(call, request.target))->put(request, data, call.deadline);
}

Result<GetBlockReply> Store::get(const Call& call, const GetBlock& request, BulkSink& out) {
  return SL_TRY(find(call, request.target))->get(request, out);
}

Status Store::sync(const Call& call, TargetId target) { return SL_TRY(find(call, target))->sync(); }

Status Store::remove_slice(const Call& call, TargetId target, BranchId owner, SliceId slice) {
  return SL_TRY(find(call, target))->remove_slice({owner, slice});
}

Result<BlockListing> Store::list(const Call& call, TargetId target, const std::string& cursor,
                                 std::uint32_t limit) {
  return SL_TRY(find(call, target))->list(cursor, limit);
}

Result<BlockListing> Store::verify(const Call& call, TargetId target, const std::string& cursor,
                                   std::uint32_t limit) {
  return SL_TRY(find(call, target))->verify(cursor, limit);
}

Result<std::vector<TargetInfo>> Store::targets(const Call&) {
  std::vector<TargetInfo> result;
  for (const auto& [id, target] : targets_) result.push_back(target->info());
  return result;
}

Result<TargetCounters> Store::counters(TargetId target) const {
  return SL_TRY(find(Call{}, target))->counters();
}

}  // namespace starlane::block
