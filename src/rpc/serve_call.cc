#include "rpc/serve_call.h"

#include <algorithm>
#include <array>

#include "rpc/attach.h"
#include "rpc/bulk_reached.h"
#include "rpc/bulk_stream.h"
#include "rpc/dispatch.h"
#include "rpc/frame_io.h"

namespace starlane::rpc {
namespace {

constexpr std::size_t kKeptScratch = 1 << 20;  // larger buffers are given up after their call

FrameHeader reply_to(const FrameHeader& request, const Status& status) {
  FrameHeader header;
  header.kind = FrameKind::reply;
  header.method = request.method;
  header.sequence = request.sequence;
  header.trace = request.trace;
  header.status = static_cast<std::uint16_t>(status.code());
  return header;
}

/// The peer broke the rules of frames: say so, and have the connection closed.
Status turn_away(net::Connection& connection, const FrameHeader& request, const Status& why) {
  FrameHeader header = reply_to(request, why);
  const ByteSpan text = bytes_of(capped(why.text()));
  seal(header, {}, text);
  const std::array<ByteSpan, 2> pieces{image_of(header), text};
  (void)connection.send(pieces, Deadline::after(Milliseconds(100)));  // it is closed either way
  return why;
}

Outcome run(const FrameHeader& header, const Services& services, ByteSpan payload,
            BulkSource& source, BulkSink& sink, Scratch& scratch) {
  const Call call = call_of(header);
  if (call.deadline.passed())
    return {Status(Errc::timeout, "the deadline passed before the server began")};
  if (header.kind == FrameKind::meta_request && services.meta != nullptr) {
    return dispatch_meta(*services.meta, call, header.method, payload, scratch.reply);
  }
  if (header.kind == FrameKind::block_request && services.block != nullptr) {
    return dispatch_block(*services.block, call, header.method, payload, source, sink,
                          scratch.reply);
  }
  return {Status(Errc::unsupported, "this server does not serve such calls")};
}

Status check_kind(const FrameHeader& header, const net::Agreed& agreed) {
  const FrameKind kind =
      agreed.purpose == net::Purpose::data ? FrameKind::block_request : FrameKind::meta_request;
  const bool attaches = header.kind == FrameKind::attach && agreed.features != 0;
  if (header.kind == kind || attaches) return {};
  return Status(Errc::protocol, "a frame that does not belong on this connection");
}

void keep_small(std::vector<std::byte>& buffer) {
  if (buffer.capacity() > kKeptScratch) buffer = {};
}

struct Serving {
  net::Connection& connection;
  const Services& services;
  const FrameHeader& header;
  Scratch& scratch;
  const Nanoseconds began = system_clock().boot();
};

std::uint32_t microseconds_since(Nanoseconds began) {
  const auto us =
      std::chrono::duration_cast<std::chrono::microseconds>(system_clock().boot() - began);
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(us.count(), 0, UINT32_MAX));
}

Status answer(ServedSource& source, ServedSink& sink, const Serving& call, const Outcome& outcome) {
  const FrameHeader& request = call.header;
  const Scratch& scratch = call.scratch;
  if (source.broken() || sink.broken())
    return Status(Errc::unavailable, "the peer went away in the middle of a call");
  SL_TRY(source.drain());
  FrameHeader header = reply_to(request, outcome.status);
  const ByteSpan payload =
      outcome.status.ok() ? ByteSpan(scratch.reply) : bytes_of(capped(outcome.status.text()));
  header.served_us = microseconds_since(call.began);
  seal(header, {}, payload);
  SL_TRY(sink.finish(header, payload));
  return outcome.distrust ? outcome.status : Status();
}

/// Where the request's bulk lies or goes, if it is in memory that the peer has exposed.
Result<WireExposure> exposure_of(const FrameHeader& header, ByteSpan body, const Peer& peer) {
  const ByteSpan bytes = exposure_in(header, body);
  const Status wrong(Errc::protocol, "a request names memory that is not exposed");
  if (bytes.size() != sizeof(WireExposure) || peer.memory == nullptr) return wrong;
  const auto exposure = load_little<WireExposure>(bytes.data());
  const std::uint64_t size = peer.memory->size();
  if (exposure.offset > size || exposure.length > size - exposure.offset) return wrong;
  if (exposure.length > kBulkLimit) return wrong;
  if (header.bulk_length != 0 && header.bulk_length != exposure.length) return wrong;
  return exposure;
}

Status run_and_answer(const Serving& call, ServedSource& source, ServedSink& sink) {
  const ByteSpan payload = payload_in(call.header, call.scratch.body);
  const Outcome outcome = run(call.header, call.services, payload, source, sink, call.scratch);
  return answer(source, sink, call, outcome);
}

Status serve_request(const Serving& call, Peer& peer, const PeerLimits& limits) {
  const FrameHeader& header = call.header;
  if (header.exposure_length == 0) {
    StreamSource source(call.connection, header.bulk_length, limits.bulk_timeout);
    StreamSink sink(call.connection, header.sequence, kBulkLimit, limits.bulk_timeout);
    return run_and_answer(call, source, sink);
  }
  const auto exposure = exposure_of(header, call.scratch.body, peer);
  if (!exposure.ok()) return turn_away(call.connection, header, exposure.status());
  ReachedSource source(*peer.memory, exposure->offset, header.bulk_length);
  ReachedSink sink(call.connection, *peer.memory, *exposure, header.sequence, limits.bulk_timeout);
  return run_and_answer(call, source, sink);
}

/// The peer offers memory: it learns whether that will be used.
Status serve_attach(const Serving& call, Peer& peer, const PeerLimits& limits) {
  StreamSource nothing(call.connection, 0, limits.bulk_timeout);
  StreamSink sink(call.connection, call.header.sequence, 0, limits.bulk_timeout);
  call.scratch.reply.clear();
  const Outcome outcome{reach_offer(payload_in(call.header, call.scratch.body),
                                    call.connection.take_descriptor(), peer)};
  return answer(nothing, sink, call, outcome);
}

}  // namespace

Status serve_call(net::Connection& connection, Peer& peer, const Services& services,
                  const PeerLimits& limits, Scratch& scratch) {
  const Deadline frame_deadline = Deadline::after(limits.frame_timeout);
  FrameHeader header;
  SL_TRY(connection.receive(std::as_writable_bytes(std::span(&header, 1)), frame_deadline));
  Status sound = check_header(header);
  if (sound.ok()) sound = check_kind(header, peer.agreed);
  if (!sound.ok()) return turn_away(connection, header, sound);
  sound = receive_body(connection, header, frame_deadline, scratch.body);
  if (sound.code() == Errc::protocol) return turn_away(connection, header, sound);
  SL_TRY(sound);
  const Serving call{connection, services, header, scratch};
  const Status status = header.kind == FrameKind::attach ? serve_attach(call, peer, limits)
                                                         : serve_request(call, peer, limits);
  keep_small(scratch.body);
  keep_small(scratch.reply);
  return status;
}

}  // namespace starlane::rpc
