#include "wire/block_router.h"

#include <set>

namespace starlane::wire {

Status BlockRouter::refresh(const Call& call) {
  pb::ClusterMap map;
  SL_TRY(meta_.cluster_map(call, {}, &map));
  MutexLock lock(m_);
  endpoints_.clear();
  for (const pb::Target& target : map.targets())
    endpoints_[TargetId(target.id())] = target.endpoint();
  return {};
}

Result<std::shared_ptr<BlockService>> BlockRouter::server_of(const Call& call, TargetId target) {
  for (const bool again : {false, true}) {
    if (again) SL_TRY(refresh(call));
    std::string endpoint;
    {
      MutexLock lock(m_);
      const auto found = endpoints_.find(target);
      if (found == endpoints_.end()) continue;
      endpoint = found->second;
    }
    auto server = network_.blocks(endpoint);
    if (server == nullptr)
      return Status(Errc::invalid,
                    "target " + std::to_string(target.value) + " has the endpoint " + endpoint);
    return server;
  }
  return Status(Errc::not_found,
                "no target " + std::to_string(target.value) + " in the cluster map");
}

Status BlockRouter::put(const Call& call, const PutBlock& request, BulkSource& data) {
  const auto server = SL_TRY(server_of(call, request.target));
  return server->put(call, request, data);
}

Result<GetBlockReply> BlockRouter::get(const Call& call, const GetBlock& request, BulkSink& out) {
  const auto server = SL_TRY(server_of(call, request.target));
  return server->get(call, request, out);
}

Status BlockRouter::sync(const Call& call, TargetId target) {
  const auto server = SL_TRY(server_of(call, target));
  return server->sync(call, target);
}

Status BlockRouter::remove_slice(const Call& call, TargetId target, BranchId owner, SliceId slice) {
  const auto server = SL_TRY(server_of(call, target));
  return server->remove_slice(call, target, owner, slice);
}

Result<BlockListing> BlockRouter::list(const Call& call, TargetId target, const std::string& cursor,
                                       std::uint32_t limit) {
  const auto server = SL_TRY(server_of(call, target));
  return server->list(call, target, cursor, limit);
}

Result<BlockListing> BlockRouter::verify(const Call& call, TargetId target,
                                         const std::string& cursor, std::uint32_t limit) {
  const auto server = SL_TRY(server_of(call, target));
  return server->verify(call, target, cursor, limit);
}

Result<std::vector<TargetInfo>> BlockRouter::targets(const Call& call) {
  SL_TRY(refresh(call));
  std::set<std::string> endpoints;
  {
    MutexLock lock(m_);
    for (const auto& [target, endpoint] : endpoints_) endpoints.insert(endpoint);
  }
  std::vector<TargetInfo> all;
  for (const std::string& endpoint : endpoints) {
    const auto server = network_.blocks(endpoint);
    if (server == nullptr) return Status(Errc::invalid, "a target has the endpoint " + endpoint);
    for (TargetInfo& info : SL_TRY(server->targets(call))) all.push_back(std::move(info));
  }
  return all;
}

}  // namespace starlane::wire
