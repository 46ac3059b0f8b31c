#include "keeper/slice_blocks.h"

#include <algorithm>

#include "codec/crc32c.h"
#include "common/batch.h"
#include "placement/choose.h"

namespace starlane::keeper {
namespace {

Result<TargetState> state_of(const std::string& name) {
  if (name == "up" || name.empty()) return TargetState::up;
  if (name == "down") return TargetState::down;
  if (name == "draining") return TargetState::draining;
  return Status(Errc::protocol, "the cluster map has a target in the unknown state " + name);
}

}  // namespace

Result<ClusterMap> map_of(const pb::ClusterMap& map) {
  ClusterMap out;
  out.epoch = map.epoch();
  for (const pb::Target& target : map.targets()) {
    const TargetState state = SL_TRY(state_of(target.state()));
    out.targets.push_back(
        {TargetId(target.id()), target.weight(), target.endpoint(), state, target.domain()});
  }
  std::sort(out.targets.begin(), out.targets.end(),
            [](const Target& a, const Target& b) { return a.id < b.id; });
  SL_TRY(validate(out));
  return out;
}

SliceBlocks::SliceBlocks(BlockService& service, std::size_t remove_threads)
    : service_(service), pool_({"keeper-remove", remove_threads, 1024}) {}

std::vector<TargetId> SliceBlocks::by_likelihood(const BlockId& block) const {
  std::vector<TargetId> order = choose(map_, block.owner, block.slice, block.index, 1);
  for (const Target& target : map_.targets) {
    if (std::find(order.begin(), order.end(), target.id) == order.end()) order.push_back(target.id);
  }
  return order;
}

Status SliceBlocks::read_block(const Call& call, const BlockId& block, std::uint32_t offset,
                               MutableByteSpan out) {
  Status first(Errc::not_found, "no target in the cluster map");
  bool tried = false;
  for (const TargetId target : by_likelihood(block)) {
    LandingSink sink(out);
    const GetBlock request{target, block, offset, static_cast<std::uint32_t>(out.size())};
    Result<GetBlockReply> got = service_.get(call, request, sink);
    if (got.ok()) {  // what is merged gets new checksums: damage on the way must not become content
      if (sink.written() == out.size() && checksums_match(out, offset, got->checksums)) return {};
      got = Status(Errc::corrupt, "a block did not match its checksums");
    }
    // A failure says more than another target's "not here".
    if (!tried || first.code() == Errc::not_found) first = got.status();
    tried = true;
  }
  return first;
}

Status SliceBlocks::read(const Call& call, const SliceName& name, std::uint64_t offset,
                         MutableByteSpan out) {
  while (!out.empty()) {
    const auto index = static_cast<std::uint32_t>(offset / kBlockSize);
    const std::uint64_t inside = offset % kBlockSize;
    const std::uint64_t length = std::min<std::uint64_t>(out.size(), kBlockSize - inside);
    SL_TRY(read_block(call, {name.owner, name.slice, index}, static_cast<std::uint32_t>(inside),
                      out.first(length)));
    out = out.subspan(length);
    offset += length;
  }
  return {};
}

Result<bool> SliceBlocks::has(const Call& call, const BlockId& block) {
  std::byte byte{};
  const Status got = read_block(call, block, 0, MutableByteSpan(&byte, 1));
  if (got.ok()) return true;
  if (got.code() == Errc::not_found) return false;
  return got;
}

Status SliceBlocks::put(const Call& call, const BlockId& block, ByteSpan bytes) {
  const std::vector<TargetId> chosen = choose(map_, block.owner, block.slice, block.index, 1);
  if (chosen.empty())
    return Status(Errc::unavailable, "the cluster map has no target that takes data");
  MemorySource source(bytes);
  return service_.put(call, {chosen.front(), block, Safety::accepted, checksum_units(bytes)},
                      source);
}

Status SliceBlocks::sync_all(const Call& call) {
  for (const Target& target : map_.targets) SL_TRY(service_.sync(call, target.id));
  return {};
}

std::vector<Status> SliceBlocks::remove_all(const Call& call, const std::vector<SliceName>& names) {
  std::vector<Status> results(names.size());
  if (map_.targets.empty()) {  // Nothing can be said of blocks that nobody was asked about.
    std::fill(results.begin(), results.end(),
              Status(Errc::unavailable, "the cluster map has no targets"));
    return results;
  }
  Batch batch;
  batch.expect(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    pool_.submit([&, i] {
      for (const Target& target : map_.targets) {
        const Status removed =
            service_.remove_slice(call, target.id, names[i].owner, names[i].slice);
        if (!removed.ok() && results[i].ok()) results[i] = removed;
      }
      batch.done({});
    });
  }
  SL_CHECK(batch.wait().ok());
  return results;
}

}  // namespace starlane::keeper
