// For tests and benchmarks: a MetaService that does what a test says, a BlockService that keeps
// blocks in memory, and a running server with a client's way to it. Any thread.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "codec/crc32c.h"
#include "codec/mac.h"
#include "common/mutex.h"
#include "proto/block_service.h"
#include "proto/meta_service.h"
#include "rpc/block_stub.h"
#include "rpc/channel.h"
#include "rpc/meta_stub.h"
#include "rpc/server.h"

namespace starlane::rpc {

/// Every method calls `serve` with its number; the reply may be filled through reflection or by
/// type.
class FakeMeta final : public MetaService {
 public:
  using Serve = std::function<Status(std::uint16_t method, const Call&,
                                     const google::protobuf::Message& request,
                                     google::protobuf::Message* reply)>;
  explicit FakeMeta(Serve serve) : serve_(std::move(serve)) {}

#define SL_DEFINE(number, method, Request, Reply)                                          \
  Status method(const Call& call, const pb::Request& request, pb::Reply* reply) override { \
    return serve_(number, call, request, reply);                                           \
  }
  SL_META_METHODS(SL_DEFINE)
#undef SL_DEFINE

 private:
  const Serve serve_;
};

class MemoryBlocks final : public BlockService {
 public:
  /// piece: how many bytes a get writes at once.
  explicit MemoryBlocks(std::size_t piece = kBlockSize) : piece_(piece) {}

  Status put(const Call&, const PutBlock& request, BulkSource& data) override {
    std::vector<std::byte> bytes(data.size());
    if (const Status status = data.read(bytes); !status.ok()) return status;
    if (checksum_units(bytes) != request.unit_checksums)
      return Status(Errc::corrupt, "checksums differ");
    MutexLock lock(m_);
    ++puts_;
    blocks_.emplace(request.block, std::move(bytes));  // a get may be reading the first
    return {};
  }
  Result<GetBlockReply> get(const Call&, const GetBlock& request, BulkSink& out) override {
    const std::vector<std::byte>* block = nullptr;
    {
      MutexLock lock(m_);
      const auto found = blocks_.find(request.block);
      if (found == blocks_.end()) return Status(Errc::not_found, "no such block");
      block = &found->second;  // never removed
    }
    if (std::uint64_t{request.offset} + request.length > block->size()) {
      return Status(Errc::invalid, "beyond the block");
    }
    ByteSpan rest = ByteSpan(*block).subspan(request.offset, request.length);
    while (!rest.empty()) {
      const ByteSpan part = rest.first(std::min(piece_, rest.size()));
      if (const Status status = out.write(part); !status.ok()) return status;
      rest = rest.subspan(part.size());
    }
    return GetBlockReply{{1, 2, 3}};
  }
  Status sync(const Call&, TargetId target) override {
    return target == TargetId(1)
               ? Status()
               : Status(Errc::not_found, "no target " + std::to_string(target.value));
  }
  Status remove_slice(const Call&, TargetId, BranchId owner, SliceId slice) override {
    return owner == BranchId(3) && slice == SliceId(4) ? Status()
                                                       : Status(Errc::io, "other arguments came");
  }
  Result<BlockListing> list(const Call&, TargetId, const std::string& cursor,
                            std::uint32_t limit) override {
    MutexLock lock(m_);
    BlockListing listing;
    for (const auto& [id, bytes] : blocks_) {
      if (listing.blocks.size() < limit)
        listing.blocks.push_back({id, static_cast<std::uint32_t>(bytes.size())});
    }
    listing.cursor = cursor + "+";
    return listing;
  }
  Result<BlockListing> verify(const Call&, TargetId, const std::string&, std::uint32_t) override {
    return BlockListing{};
  }
  Result<std::vector<TargetInfo>> targets(const Call&) override {
    TargetInfo info;
    info.target = TargetId(1);
    info.capacity_bytes = 1000;
    info.free_bytes = 600;
    info.stored_bytes = 300;
    info.blocks = 7;
    info.healthy = false;
    info.directory = "/data/one";
    info.device = "memory";
    return std::vector<TargetInfo>{info, info};
  }
  std::uint64_t puts() const {
    MutexLock lock(m_);
    return puts_;
  }

 private:
  const std::size_t piece_;
  mutable Mutex m_;
  std::map<BlockId, std::vector<std::byte>> blocks_ SL_GUARDED_BY(m_);
  std::uint64_t puts_ SL_GUARDED_BY(m_) = 0;
};

inline PutBlock put_of(BlockId id, ByteSpan bytes) {
  return PutBlock{TargetId(1), id, Safety::accepted, checksum_units(bytes)};
}

}  // namespace starlane::rpc
