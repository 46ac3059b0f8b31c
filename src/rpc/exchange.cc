#include "rpc/exchange.h"

#include <algorithm>
#include <array>

#include "rpc/frame_io.h"

namespace starlane::rpc {
namespace {

constexpr std::size_t kStage =
    2 << 20;  // a huge page of the node cache, which the kernel then need not clear

/// Sends the bytes of a source that lie in no one piece of memory, a stage at a time.
Status send_staged(Line& line, BulkSource& source, Deadline deadline) {
  line.stage.resize(kStage);
  for (std::uint64_t left = source.size(); left != 0;) {
    const auto part = MutableByteSpan(line.stage).first(std::min<std::uint64_t>(left, kStage));
    SL_TRY(source.read(part));
    const ByteSpan piece = part;
    SL_TRY(line.connection->send(std::span(&piece, 1), deadline));
    left -= part.size();
  }
  return {};
}

/// Bulk shorter than this travels on the stream: one step less to wait for.
constexpr std::uint64_t kLeastInMemory = 64 << 10;

std::uint64_t bulk_of(const Request& request) {
  return request.source != nullptr ? request.source->size() : request.sink_length;
}

bool goes_through_memory(const Line& line, const Request& request) {
  const std::uint64_t length = bulk_of(request);
  return line.exposed != nullptr && length >= kLeastInMemory &&
         length <= line.exposed->region().size();
}

/// The request's bytes are put where the server can reach them; only the frame is sent.
Status send_exposed(Line& line, FrameHeader& header, const Request& request, Deadline deadline) {
  const WireExposure exposure{0, bulk_of(request)};
  if (request.source != nullptr) {
    const MutableByteSpan region = line.exposed->region().first(exposure.length);
    if (const auto memory = request.source->memory()) {
      std::memcpy(region.data(), memory->data(), region.size());
    } else {
      SL_TRY(request.source->read(region));
    }
  }
  const ByteSpan place = std::as_bytes(std::span(&exposure, 1));
  seal(header, place, request.payload);
  return line.connection->send(std::array<ByteSpan, 3>{image_of(header), place, request.payload},
                               deadline);
}

Status send_request(Line& line, FrameHeader& header, const Request& request, Deadline deadline) {
  if (goes_through_memory(line, request)) return send_exposed(line, header, request, deadline);
  seal(header, {}, request.payload);
  std::array<ByteSpan, 3> pieces{image_of(header), request.payload, {}};
  std::optional<ByteSpan> memory;
  if (request.source != nullptr) memory = request.source->memory();
  if (memory) pieces[2] = memory->first(header.bulk_length);
  SL_TRY(line.connection->send(pieces, deadline));
  if (request.source == nullptr || memory) return {};
  return send_staged(line, *request.source, deadline);
}

/// Receives what the server sends of a get, where the caller wants it.
class Receiver {
 public:
  Receiver(Line& line, const Request& request, Deadline deadline)
      : line_(line), sink_(request.sink), deadline_(deadline) {
    if (sink_ == nullptr) return;
    left_ = request.sink_length;
    const auto memory = sink_->memory();
    direct_ = memory && memory->size() >= left_;
    if (direct_) memory_ = *memory;
  }

  Status take(std::uint64_t length, bool in_memory) {
    if (length > left_) {
      return Status(Errc::protocol, line_.connection->peer() + " sent more than was asked for");
    }
    const std::uint64_t position = done_;
    left_ -= length;
    done_ += length;
    if (in_memory) return take_exposed(position, length);
    if (!direct_) return take_staged(length);
    return line_.connection->receive(memory_.subspan(position, length), deadline_);
  }
  bool complete() const { return left_ == 0; }
  void finish() {
    if (direct_) sink_->filled(done_);
  }

 private:
  Status take_exposed(std::uint64_t position, std::uint64_t length) {
    if (line_.exposed == nullptr || position + length > line_.exposed->region().size()) {
      return Status(Errc::protocol, line_.connection->peer() + " names memory that is not exposed");
    }
    const ByteSpan bytes = line_.exposed->region().subspan(position, length);
    if (!direct_) return sink_->write(bytes);
    std::memcpy(memory_.data() + position, bytes.data(), length);
    return {};
  }
  Status take_staged(std::uint64_t length) {
    line_.stage.resize(kStage);
    while (length != 0) {
      const auto part = MutableByteSpan(line_.stage).first(std::min<std::uint64_t>(length, kStage));
      SL_TRY(line_.connection->receive(part, deadline_));
      SL_TRY(sink_->write(part));
      length -= part.size();
    }
    return {};
  }

  Line& line_;
  BulkSink* sink_;
  bool direct_ = false;  // into memory_, where the caller wants it
  MutableByteSpan memory_;
  std::uint64_t left_ = 0, done_ = 0;
  Deadline deadline_;
};

Status receive_reply(Line& line, const Request& request, Deadline deadline, Exchanged& done) {
  Receiver receiver(line, request, deadline);
  for (;;) {
    done.header = SL_TRY(receive_header(*line.connection, deadline));
    if (done.header.sequence != line.sequence)
      return Status(Errc::protocol, "an answer to another call");
    if (done.header.kind != FrameKind::bulk) break;
    SL_TRY(receiver.take(done.header.bulk_length, (done.header.flags & kBulkInMemory) != 0));
  }
  if (done.header.kind != FrameKind::reply)
    return Status(Errc::protocol, "a server that asks instead of answering");
  const bool block = request.kind == FrameKind::block_request;
  if (block && done.header.payload_length > kBlockReplyLimit)
    return Status(Errc::protocol, "an answer too long");
  SL_TRY(receive_body(*line.connection, done.header, deadline, line.buffer));
  done.payload = payload_in(done.header, line.buffer);
  if (done.header.status != 0) return {};
  if (!receiver.complete()) return Status(Errc::protocol, "fewer bytes than were asked for");
  receiver.finish();
  return {};
}

}  // namespace

Exchanged exchange(Line& line, const Call& call, const Request& request,
                   std::uint64_t mount_nonce) {
  Exchanged done;
  FrameHeader header;
  header.kind = request.kind;
  header.method = request.method;
  header.sequence = ++line.sequence;
  header.mount_nonce = mount_nonce;
  header.bulk_length = request.source == nullptr ? 0 : request.source->size();
  put_call(call, header);

  done.way = send_request(line, header, request, call.deadline);
  if (!done.way.ok()) return done;  // the server has no whole request, so it did nothing
  done.sent = true;
  done.way = receive_reply(line, request, call.deadline, done);
  if (done.way.code() == Errc::protocol) done.way = done.way.with(line.connection->peer());
  return done;
}

}  // namespace starlane::rpc
