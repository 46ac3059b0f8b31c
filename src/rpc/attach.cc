#include "rpc/attach.h"

#include <poll.h>

#include <array>

#include "codec/mac.h"
#include "rpc/frame_io.h"

namespace starlane::rpc {
namespace {

constexpr int kTickMs =
    1;  // between looks at what the transport itself wants, while a connection is set up

AttachProbe complement(AttachProbe probe) {
  for (auto& byte : probe.bytes) byte = static_cast<std::uint8_t>(~byte);
  return probe;
}

Status send_offer(Line& line, const net::ExposedMemory& exposed, const AttachProbe& probe,
                  Deadline deadline) {
  std::vector<std::byte> payload(sizeof probe + exposed.offer().size());
  std::memcpy(payload.data(), &probe, sizeof probe);
  std::memcpy(payload.data() + sizeof probe, exposed.offer().data(), exposed.offer().size());
  FrameHeader header;
  header.kind = FrameKind::attach;
  header.sequence = ++line.sequence;
  seal(header, {}, payload);
  const std::array<ByteSpan, 2> pieces{image_of(header), payload};
  if (exposed.descriptor() < 0) return line.connection->send(pieces, deadline);
  return line.connection->send_with(exposed.descriptor(), pieces, deadline);
}

/// `verdict` is the server's; what is returned is the connection's.
Status receive_verdict(Line& line, net::ExposedMemory& exposed, Deadline deadline,
                       Status& verdict) {
  while (!SL_TRY(line.connection->arrived(sizeof(FrameHeader)))) {
    exposed.progress();
    if (deadline.passed()) return Status(Errc::timeout, "no verdict on exposed memory");
    pollfd waiting{line.connection->descriptor(), POLLIN, 0};
    (void)::poll(&waiting, 1, kTickMs);
  }
  const FrameHeader header = SL_TRY(receive_header(*line.connection, deadline));
  if (header.kind != FrameKind::reply || header.sequence != line.sequence) {
    return Status(Errc::protocol, line.connection->peer() + " did not answer an offer of memory");
  }
  SL_TRY(receive_body(*line.connection, header, deadline, line.buffer));
  verdict = status_of(header, payload_in(header, line.buffer));
  return {};
}

}  // namespace

Status attach(Line& line, net::MemoryFabric& fabric, Deadline deadline) {
  auto exposed = fabric.expose(kBulkLimit);
  if (!exposed.ok()) return {};
  AttachProbe probe;
  SL_TRY(fill_random(std::as_writable_bytes(std::span(probe.bytes))));
  std::byte* const region = (*exposed)->region().data();
  std::memcpy(region, &probe, sizeof probe);
  const Status sent = send_offer(line, **exposed, probe, deadline);
  if (sent.code() == Errc::unsupported) return {};
  SL_TRY(sent);
  Status verdict;
  SL_TRY(receive_verdict(line, **exposed, deadline, verdict));
  const AttachProbe expected = complement(probe);
  const bool reached =
      verdict.ok() && std::memcmp(region + sizeof probe, &expected, sizeof expected) == 0;
  if (reached) line.exposed = std::move(exposed).value();
  return {};
}

Status reach_offer(ByteSpan payload, UniqueFd descriptor, Peer& peer) {
  if (peer.fabric == nullptr || peer.memory != nullptr || payload.size() < sizeof(AttachProbe)) {
    return Status(Errc::unsupported, "exposed memory is not used here");
  }
  const auto probe = load_little<AttachProbe>(payload.data());
  auto memory = SL_TRY(peer.fabric->reach(payload.subspan(sizeof probe), std::move(descriptor)));
  AttachProbe found;
  if (memory->size() < 2 * sizeof found) return Status(Errc::invalid, "too little exposed memory");
  SL_TRY(memory->pull(0, std::as_writable_bytes(std::span(found.bytes))));
  if (std::memcmp(&found, &probe, sizeof probe) != 0) {
    return Status(Errc::unsupported, "what was reached is not what was offered");
  }
  const AttachProbe answer = complement(probe);
  SL_TRY(memory->push(sizeof found, std::as_bytes(std::span(answer.bytes))));
  peer.memory = std::move(memory);
  return {};
}

}  // namespace starlane::rpc
