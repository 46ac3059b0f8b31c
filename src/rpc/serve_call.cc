#include "rpc/serve_call.h"

#include <array>

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
      agreed.purpose == net::Purpose::meta ? FrameKind::meta_request : FrameKind::block_request;
  if (header.kind == kind) return {};
  return Status(Errc::protocol, "a frame that does not belong on this connection");
}

void keep_small(std::vector<std::byte>& buffer) {
  if (buffer.capacity() > kKeptScratch) buffer = {};
}

Status answer(StreamSource& source, StreamSink& sink, const FrameHeader& request,
              const Outcome& outcome, Scratch& scratch) {
  if (source.broken() || sink.broken())
    return Status(Errc::unavailable, "the peer went away in the middle of a call");
  SL_TRY(source.drain());
  FrameHeader header = reply_to(request, outcome.status);
  const ByteSpan payload =
      outcome.status.ok() ? ByteSpan(scratch.reply) : bytes_of(capped(outcome.status.text()));
  seal(header, {}, payload);
  SL_TRY(sink.finish(header, payload));
  return outcome.distrust ? outcome.status : Status();
}

}  // namespace

Status serve_call(net::Connection& connection, const net::Agreed& agreed, const Services& services,
                  const PeerLimits& limits, Scratch& scratch) {
  const Deadline frame_deadline = Deadline::after(limits.frame_timeout);
  FrameHeader header;
  SL_TRY(connection.receive(std::as_writable_bytes(std::span(&header, 1)), frame_deadline));
  Status sound = check_header(header);
  if (sound.ok()) sound = check_kind(header, agreed);
  if (!sound.ok()) return turn_away(connection, header, sound);
  sound = receive_body(connection, header, frame_deadline, scratch.body);
  if (sound.code() == Errc::protocol) return turn_away(connection, header, sound);
  SL_TRY(sound);

  StreamSource source(connection, header.bulk_length, limits.bulk_timeout);
  StreamSink sink(connection, header.sequence, kBulkLimit, limits.bulk_timeout);
  const Outcome outcome =
      run(header, services, payload_in(header, scratch.body), source, sink, scratch);
  const Status status = answer(source, sink, header, outcome, scratch);
  keep_small(scratch.body);
  keep_small(scratch.reply);
  return status;
}

}  // namespace starlane::rpc
