#include "wire/metered.h"

#include "common/log.h"
#include "common/trace.h"

namespace starlane::wire {
namespace {

/// From its making to `end`, one call.
class Watch {
 public:
  Watch(CallMeter& meter, const Metering& metering, const char* name, const Call& call)
      : meter_(meter), metering_(metering), name_(name), call_(call), scope_(trace_of(call)) {
    call_.trace = current_trace();
  }
  const Call& call() const { return call_; }

  void end(const Status& status) const {
    const Nanoseconds took = system_clock().boot() - began_;
    meter_.took.record(took);
    if (!status.ok()) meter_.failed.add();
    if (status.code() == Errc::busy) meter_.busy.add();
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(took).count();
    SL_LOG(debug, "event=call side={} call={} trace={:016x} session={} took_us={} outcome={}",
           metering_.side, name_, call_.trace, call_.session.value, us, name_of(status.code()));
    if (metering_.slow.count() != 0 && took > metering_.slow)
      SL_LOG(warn, "event=slow_call side={} call={} trace={:016x} session={} took_ms={} outcome={}",
             metering_.side, name_, call_.trace, call_.session.value, us / 1000,
             name_of(status.code()));
  }

 private:
  /// Of the caller, or of what this thread does anyhow.
  static std::uint64_t trace_of(const Call& call) {
    return call.trace != 0 ? call.trace : current_trace();
  }

  CallMeter& meter_;
  const Metering& metering_;
  const char* const name_;
  Call call_;
  const TraceScope scope_;
  const Nanoseconds began_ = system_clock().boot();
};

void measure_call(metrics::Exposition& out, const std::string& prefix, const CallMeter& meter,
                  const char* name) {
  const metrics::Counted took = meter.took.counted();
  if (took.count() == 0) return;  // most processes make few kinds of calls
  const metrics::Labels labels{{"call", name}};
  out.histogram(prefix + "_call_seconds", "Time of calls, by kind", took, metrics::Unit::seconds,
                labels);
  out.counter(prefix + "_call_failures_total", "Calls that were answered with an error",
              meter.failed.value(), labels);
  out.counter(prefix + "_call_busy_total", "Calls that were answered with busy: to be repeated",
              meter.busy.value(), labels);
}

}  // namespace

template <typename Request, typename Reply>
Status MeteredMeta::run(int number, const char* name,
                        Status (MetaService::*method)(const Call&, const Request&, Reply*),
                        const Call& call, const Request& request, Reply* reply) {
  const Watch watch(meters_[static_cast<std::size_t>(number)], metering_, name, call);
  Status status = (inner_.*method)(watch.call(), request, reply);
  watch.end(status);
  return status;
}

#define SL_METERED(number, method, Request, Reply)                                             \
  static_assert(number < 80);                                                                  \
  Status MeteredMeta::method(const Call& call, const pb::Request& request, pb::Reply* reply) { \
    return run(number, #method, &MetaService::method, call, request, reply);                   \
  }
SL_META_METHODS(SL_METERED)
#undef SL_METERED

void MeteredMeta::measure(metrics::Exposition& out, const std::string& prefix) const {
#define SL_MEASURED(number, method, Request, Reply) \
  measure_call(out, prefix, meters_[number], #method);
  SL_META_METHODS(SL_MEASURED)
#undef SL_MEASURED
}

void BlockMeters::measure(metrics::Exposition& out, const std::string& prefix) const {
  measure_call(out, prefix, put, "put");
  measure_call(out, prefix, get, "get");
  measure_call(out, prefix, sync, "sync");
  measure_call(out, prefix, remove, "remove_slice");
  out.counter(prefix + "_put_bytes_total", "Bytes of blocks that were put", put_bytes.value());
  out.counter(prefix + "_get_bytes_total", "Bytes of blocks that were got", get_bytes.value());
}

Status MeteredBlocks::put(const Call& call, const PutBlock& request, BulkSource& data) {
  const Watch watch(meters_.put, metering_, "put", call);
  const std::uint64_t size = data.size();
  Status status = inner_->put(watch.call(), request, data);
  if (status.ok()) meters_.put_bytes.add(size);
  watch.end(status);
  return status;
}

Result<GetBlockReply> MeteredBlocks::get(const Call& call, const GetBlock& request, BulkSink& out) {
  const Watch watch(meters_.get, metering_, "get", call);
  auto reply = inner_->get(watch.call(), request, out);
  if (reply.ok()) meters_.get_bytes.add(request.length);
  watch.end(reply.status());
  return reply;
}

Status MeteredBlocks::sync(const Call& call, TargetId target) {
  const Watch watch(meters_.sync, metering_, "sync", call);
  Status status = inner_->sync(watch.call(), target);
  watch.end(status);
  return status;
}

Status MeteredBlocks::remove_slice(const Call& call, TargetId target, BranchId owner,
                                   SliceId slice) {
  const Watch watch(meters_.remove, metering_, "remove_slice", call);
  Status status = inner_->remove_slice(watch.call(), target, owner, slice);
  watch.end(status);
  return status;
}

Result<BlockListing> MeteredBlocks::list(const Call& call, TargetId target,
                                         const std::string& cursor, std::uint32_t limit) {
  return inner_->list(call, target, cursor, limit);
}

Result<BlockListing> MeteredBlocks::verify(const Call& call, TargetId target,
                                           const std::string& cursor, std::uint32_t limit) {
  return inner_->verify(call, target, cursor, limit);
}

Result<std::vector<TargetInfo>> MeteredBlocks::targets(const Call& call) {
  return inner_->targets(call);
}

}  // namespace starlane::wire
