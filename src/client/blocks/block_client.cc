#include "client/blocks/block_client.h"

#include <algorithm>

#include "client/blocks/patience.h"
#include "codec/crc32c.h"
#include "common/log.h"
#include "placement/choose.h"

namespace starlane::client {
namespace {

constexpr int kDamagedTries =
    4;  // bytes may be damaged on the way: not every mismatch is a bad copy

/// A block in the pieces that the arena has it in.
class PiecesSource final : public BulkSource {
 public:
  explicit PiecesSource(const std::vector<ByteSpan>& pieces) : pieces_(pieces) {
    for (const ByteSpan piece : pieces) size_ += piece.size();
  }
  std::uint64_t size() const override { return size_; }
  Status read(MutableByteSpan out) override {
    while (!out.empty()) {
      if (at_ == pieces_.size()) return Status(Errc::invalid, "read past the end of a block");
      const ByteSpan rest = pieces_[at_].subspan(within_);
      const std::size_t n = std::min(rest.size(), out.size());
      std::memcpy(out.data(), rest.data(), n);
      out = out.subspan(n);
      within_ += n;
      if (within_ == pieces_[at_].size()) ++at_, within_ = 0;
    }
    return {};
  }
  std::optional<ByteSpan> memory() override {
    if (pieces_.size() != 1) return std::nullopt;
    return pieces_[0];
  }

 private:
  const std::vector<ByteSpan>& pieces_;
  std::uint64_t size_ = 0;
  std::size_t at_ = 0, within_ = 0;
};

std::vector<std::uint32_t> checksums_of(const std::vector<ByteSpan>& pieces) {
  std::vector<std::uint32_t> sums;
  std::uint32_t sum = 0;
  std::uint64_t filled = 0;  // of the present unit
  for (ByteSpan rest : pieces) {
    while (!rest.empty()) {
      const std::size_t n = std::min<std::size_t>(rest.size(), kChecksumUnit - filled);
      sum = crc32c(rest.first(n), sum);
      rest = rest.subspan(n);
      filled += n;
      if (filled < kChecksumUnit) continue;
      sums.push_back(sum);
      sum = 0, filled = 0;
    }
  }
  if (filled != 0) sums.push_back(sum);
  return sums;
}

/// Where a block may be, likeliest first: its place by the map, then where older maps may have put
/// it (the order of rendezvous hashing without the newer targets), then what is being drained.
/// Those that are down come last.
std::vector<TargetId> places_to_read(const ClusterMap& map, const BlockId& block) {
  std::vector<TargetId> places =
      choose(map, block.owner, block.slice, block.index, map.targets.size());
  for (const Target& target : map.targets) {
    if (std::ranges::find(places, target.id) == places.end()) places.push_back(target.id);
  }
  std::stable_partition(places.begin(), places.end(),
                        [&](TargetId id) { return map.find(id)->state != TargetState::down; });
  return places;
}

Status no_service(const Target& target) {
  return Status(Errc::unavailable, "target " + std::to_string(target.id.value) + " at " +
                                       target.endpoint + " cannot be reached");
}

}  // namespace

Result<std::size_t> copies_of_layout(std::uint32_t layout) {
  if (layout > 3) {
    return Status(Errc::unsupported,
                  "slice layout " + std::to_string(layout) + " is of a later version");
  }
  return std::size_t{layout == 0 ? 1 : layout};
}

Status BlockClient::get(const Get& request, const Landing& out, const Interrupts::Scope& scope) {
  SL_TRY(copies_of_layout(request.layout));
  Patience patience(scope, "get block");
  auto map = SL_TRY(maps_.get(scope));
  bool asked_again = false;
  for (int damaged = 0;;) {
    Status status = get_from_any(*map, request, out, patience.tries());
    if (status.ok()) {
      fetched_ += out.size();
      return status;
    }
    if (status.code() == Errc::not_found || status.code() == Errc::stale) {
      auto newer = SL_TRY(maps_.newer(map));
      const bool moved = newer->epoch != map->epoch;
      map = std::move(newer);
      if (status.code() == Errc::not_found && !moved && asked_again) return status;
      asked_again = true;
      if (moved || status.code() == Errc::not_found) continue;
    } else if (status.code() == Errc::corrupt || status.code() == Errc::io) {
      if (++damaged == kDamagedTries) return status;
    } else if (!is_passing(status.code())) {
      return status;
    } else if (request.persistence == Persistence::try_once) {
      return status;
    } else if (patience.tries() % 4 == 3) {
      map = SL_TRY(maps_.newer(map));
    }
    SL_TRY(patience.wait(status));
  }
}

/// One round over the places. A passing failure outweighs damage, damage outweighs absence.
Status BlockClient::get_from_any(const ClusterMap& map, const Get& request, const Landing& out,
                                 int tries) {
  Status worst(Errc::not_found, "no target has the block");
  for (const TargetId id : places_to_read(map, request.block)) {
    Status status = get_from(*map.find(id), request, out, tries);
    if (status.ok() || status.code() == Errc::stale || status.code() == Errc::interrupted)
      return status;
    const bool outweighs =
        is_passing(status.code()) ? !is_passing(worst.code()) : worst.code() == Errc::not_found;
    if (outweighs) worst = std::move(status);
  }
  return worst;
}

Status BlockClient::get_from(const Target& target, const Get& request, const Landing& out,
                             int tries) {
  const auto service = resolve_(target.endpoint);
  if (!service) return no_service(target);
  Call call;
  call.session = request.session;
  call.deadline = try_deadline(tries);
  GetBlock get{target.id, request.block, request.offset, static_cast<std::uint32_t>(out.size())};
  for (const bool check : {false, true}) {  // the store is asked where the damage is
    get.check = check;
    LandingSink sink(out);
    const GetBlockReply reply = SL_TRY(service->get(call, get, sink));
    if (sink.written() == out.size() &&
        checksums_match(out.bytes(), request.offset, reply.checksums))
      return {};
  }
  SL_LOG(warn, "event=bad_block target={} owner={} slice={} index={} offset={} length={}",
         target.id.value, request.block.owner.value, request.block.slice.value, request.block.index,
         request.offset, out.size());
  return Status(Errc::corrupt, "a block did not match its checksums");
}

Result<std::uint64_t> BlockClient::put(const Put& request, const Interrupts::Scope& scope) {
  const auto checksums = checksums_of(request.pieces);
  Patience patience(scope, "put block");
  auto map = SL_TRY(maps_.get(scope));
  std::vector<TargetId> done;
  for (int refused = 0;;) {
    Status status = put_copies(*map, request, checksums, done, patience.tries());
    if (status.ok()) return map->epoch;
    switch (status.code()) {
      case Errc::stale:
      case Errc::not_found:  // the server no longer has the target
        map = SL_TRY(maps_.newer(map));
        break;
      case Errc::corrupt:
      case Errc::io:
        if (++refused == kDamagedTries) return Status(Errc::io, status.text());
        break;
      case Errc::exists:
        return Status(Errc::io, status.text());
      default:
        if (!is_passing(status.code())) return status;
        if (patience.tries() % 4 == 3) map = SL_TRY(maps_.newer(map));
    }
    SL_TRY(patience.wait(status));
  }
}

/// `done`: copies of earlier tries, which need no other.
Status BlockClient::put_copies(const ClusterMap& map, const Put& request,
                               const std::vector<std::uint32_t>& checksums,
                               std::vector<TargetId>& done, int tries) {
  const std::size_t copies = SL_TRY(copies_of_layout(request.layout));
  const auto chosen =
      choose(map, request.block.owner, request.block.slice, request.block.index, copies);
  if (chosen.empty())
    return Status(Errc::unavailable, "the cluster map has no target that takes data");
  bool stored = false;
  for (const TargetId target : chosen) {
    if (map.find(target)->state == TargetState::down) continue;
    if (std::ranges::find(done, target) == done.end()) {
      SL_TRY(put_to(map, target, request, checksums, tries));
      done.push_back(target);
    }
    stored = true;
  }
  if (!stored) return Status(Errc::unavailable, "every target of the block is down");
  return {};
}

Status BlockClient::put_to(const ClusterMap& map, TargetId id, const Put& request,
                           const std::vector<std::uint32_t>& checksums, int tries) {
  const auto service = resolve_(map.find(id)->endpoint);
  if (!service) return no_service(*map.find(id));
  Call call;
  call.session = request.session;
  call.map_epoch = map.epoch;
  call.attachment_epoch = request.attachment_epoch;
  call.deadline = try_deadline(tries);
  PiecesSource source(request.pieces);
  SL_TRY(service->put(call, PutBlock{id, request.block, Safety::accepted, checksums}, source));
  put_ += source.size();
  MutexLock lock(m_);
  ++dirty_[id].puts;
  return {};
}

Status BlockClient::sync(const Interrupts::Scope& scope) {
  std::vector<TargetId> targets;
  {
    MutexLock lock(m_);
    for (const auto& [target, dirty] : dirty_) {
      if (dirty.synced < dirty.puts) targets.push_back(target);
    }
  }
  for (const TargetId target : targets) SL_TRY(sync_target(target, scope));
  return {};
}

Status BlockClient::sync_target(TargetId target, const Interrupts::Scope& scope) {
  Patience patience(scope, "sync target");
  auto map = SL_TRY(maps_.get(scope));
  for (int refused = 0;;) {
    std::uint64_t puts;
    {
      MutexLock lock(m_);
      puts = dirty_[target].puts;
    }
    const Target* const at = map->find(target);
    const auto service = at != nullptr ? resolve_(at->endpoint) : nullptr;
    Call call;
    call.deadline = try_deadline(patience.tries());
    const Status status = service
                              ? service->sync(call, target)
                              : Status(Errc::unavailable, "target " + std::to_string(target.value) +
                                                              " cannot be reached");
    if (status.ok()) {
      MutexLock lock(m_);
      dirty_[target].synced = std::max(dirty_[target].synced, puts);
      return {};
    }
    const bool moved = status.code() == Errc::stale || status.code() == Errc::not_found;
    if (!moved && !is_passing(status.code()) && ++refused == kDamagedTries) return status;
    if (moved || patience.tries() % 4 == 3) map = SL_TRY(maps_.newer(map));
    SL_TRY(patience.wait(status));
  }
}

void BlockClient::remove(BranchId owner, SliceId slice, std::uint32_t layout,
                         const Interrupts::Scope& scope) {
  const auto map = maps_.get(scope);
  const auto copies = copies_of_layout(layout);
  if (!map.ok() || !copies.ok()) return;
  // The blocks of a slice are spread over all targets; each refuses what it never had without cost.
  for (const Target& target : (*map)->targets) {
    const auto service = resolve_(target.endpoint);
    if (!service) continue;
    Call call;
    call.map_epoch = (*map)->epoch;
    call.deadline = try_deadline(0);
    const Status status = service->remove_slice(call, target.id, owner, slice);
    if (!status.ok())
      SL_LOG(debug, "event=slice_left target={} slice={}", target.id.value, slice.value);
  }
}

}  // namespace starlane::client
