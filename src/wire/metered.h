// A MetaService or BlockService with figures and log lines: every call through it is timed, counted
// and, at debug level, logged with the id of the work that it belongs to; slow ones are warned of.
// The same on both ends: the client's figures have the way in them, the server's have not. Any
// thread.
#pragma once
#include <array>
#include <memory>
#include <string>

#include "metrics/exposition.h"
#include "proto/block_service.h"
#include "proto/meta_service.h"

namespace starlane::wire {

/// How calls are told of.
struct Metering {
  const char* side = "";    // who counts: "meta", "store", or the client of one
  Milliseconds slow{1000};  // a call that took longer is logged; 0: none is
};

/// Of one kind of call.
struct CallMeter {
  metrics::Histogram took;
  metrics::Counter failed, busy;
};

class MeteredMeta final : public MetaService {
 public:
  MeteredMeta(MetaService& inner, const Metering& metering) : inner_(inner), metering_(metering) {}

#define SL_METERED(number, method, Request, Reply) \
  Status method(const Call& call, const pb::Request& request, pb::Reply* reply) override;
  SL_META_METHODS(SL_METERED)
#undef SL_METERED

  /// As PREFIX_call_seconds and so on, by call.
  void measure(metrics::Exposition& out, const std::string& prefix) const;

 private:
  template <typename Request, typename Reply>
  Status run(int number, const char* name,
             Status (MetaService::*method)(const Call&, const Request&, Reply*), const Call& call,
             const Request& request, Reply* reply);

  static constexpr std::size_t kNumbers = 80;  // above every method's
  MetaService& inner_;
  const Metering metering_;
  std::array<CallMeter, kNumbers> meters_;
};

/// Shared by all MeteredBlocks of a process's one side.
struct BlockMeters {
  CallMeter put, get, sync, remove;
  metrics::Counter put_bytes, get_bytes;

  void measure(metrics::Exposition& out, const std::string& prefix) const;
};

class MeteredBlocks final : public BlockService {
 public:
  MeteredBlocks(std::shared_ptr<BlockService> inner, BlockMeters& meters, const Metering& metering)
      : inner_(std::move(inner)), meters_(meters), metering_(metering) {}

  Status put(const Call& call, const PutBlock& request, BulkSource& data) override;
  Result<GetBlockReply> get(const Call& call, const GetBlock& request, BulkSink& out) override;
  Status sync(const Call& call, TargetId target) override;
  Status remove_slice(const Call& call, TargetId target, BranchId owner, SliceId slice) override;
  Result<BlockListing> list(const Call& call, TargetId target, const std::string& cursor,
                            std::uint32_t limit) override;
  Result<BlockListing> verify(const Call& call, TargetId target, const std::string& cursor,
                              std::uint32_t limit) override;
  Result<std::vector<TargetInfo>> targets(const Call& call) override;

 private:
  const std::shared_ptr<BlockService> inner_;
  BlockMeters& meters_;
  const Metering metering_;
};

}  // namespace starlane::wire
