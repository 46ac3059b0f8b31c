#include "net/handshake.h"

#include "codec/mac.h"

namespace starlane::net {
namespace {

template <typename T>
ByteSpan image_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
template <typename T>
MutableByteSpan room_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

Status send_one(Connection& connection, ByteSpan bytes, Deadline deadline) {
  return connection.send(std::span(&bytes, 1), deadline);
}

/// The label keeps one side's proof from being sent back as the other's.
Mac proof_of(std::string_view label, const Key& key, const ClientHello& client,
             ServerHello server) {
  server.proof = {};
  std::string said(label);
  said += text_of(image_of(client));
  said += text_of(image_of(server));
  return hmac_sha256(key.bytes, bytes_of(said));
}
constexpr std::string_view kServerLabel = "starlane handshake 1 server";
constexpr std::string_view kClientLabel = "starlane handshake 1 client";

Status refused(const Connection& connection, std::uint16_t code) {
  const std::string who = "the server at " + connection.peer();
  switch (static_cast<Errc>(code)) {
    case Errc::busy:
      return Status(Errc::busy, who + " has no room for another connection");
    case Errc::unauthenticated:
      return Status(Errc::unauthenticated, who + " refuses our key");
    case Errc::unsupported:
      return Status(Errc::unsupported, who + " does not serve this kind of call");
    default:
      return Status(Errc::protocol, who + " speaks another version of the protocol");
  }
}

Status check_server(const Connection& connection, const Key& key, const ClientHello& client,
                    const ServerHello& server) {
  if (server.magic != kHandshakeMagic) {
    return Status(Errc::protocol,
                  "what answers at " + connection.peer() + " is no starlane server");
  }
  if (server.refusal != 0) return refused(connection, server.refusal);
  if (server.major != kHandshakeMajor)
    return refused(connection, static_cast<std::uint16_t>(Errc::protocol));
  if (!equal_secret(server.proof, proof_of(kServerLabel, key, client, server))) {
    return Status(Errc::unauthenticated,
                  "the server at " + connection.peer() + " holds another key than ours");
  }
  return {};
}

}  // namespace

Result<Agreed> greet(Connection& connection, const Key& key, const Agreed& wanted,
                     Deadline deadline) {
  ClientHello client;
  client.purpose = wanted.purpose;
  client.features = wanted.features;
  client.mount_nonce = wanted.mount_nonce;
  SL_TRY(fill_random(client.nonce));
  SL_TRY(send_one(connection, image_of(client), deadline));
  ServerHello server;
  SL_TRY(connection.receive(room_of(server), deadline));
  SL_TRY(check_server(connection, key, client, server));
  const ClientProof proof{proof_of(kClientLabel, key, client, server)};
  SL_TRY(send_one(connection, image_of(proof), deadline));
  Verdict verdict;
  SL_TRY(connection.receive(room_of(verdict), deadline));
  if (verdict.magic != kHandshakeMagic)
    return Status(Errc::protocol, connection.peer() + " sent a damaged verdict");
  if (verdict.refusal != 0) return refused(connection, verdict.refusal);
  return Agreed{wanted.purpose, static_cast<std::uint8_t>(server.features & wanted.features),
                wanted.mount_nonce};
}

Result<bool> ServerHandshake::advance(Connection& connection, const Key& key, bool full) {
  const Deadline now = Deadline::after({});
  if (!greeted_) {
    if (!SL_TRY(connection.arrived(sizeof client_))) return false;
    SL_TRY(connection.receive(room_of(client_), now));
    SL_TRY(answer_hello(connection, key, full));
    greeted_ = true;
  }
  if (!SL_TRY(connection.arrived(sizeof(ClientProof)))) return false;
  SL_TRY(judge_proof(connection, key));
  return true;
}

Status ServerHandshake::answer_hello(Connection& connection, const Key& key, bool full) {
  if (client_.magic != kHandshakeMagic) {
    return Status(Errc::protocol, connection.peer() + " does not speak the starlane protocol");
  }
  const bool known = client_.purpose == Purpose::meta || client_.purpose == Purpose::data ||
                     client_.purpose == Purpose::wait;
  Errc refusal = full ? Errc::busy : known ? Errc::ok : Errc::unsupported;
  if (client_.major != kHandshakeMajor) refusal = Errc::protocol;
  server_.refusal = static_cast<std::uint8_t>(refusal);
  if (refusal == Errc::ok) {
    server_.features = client_.features & features_;
    SL_TRY(fill_random(server_.nonce));
    server_.proof = proof_of(kServerLabel, key, client_, server_);
  }
  SL_TRY(send_one(connection, image_of(server_), Deadline::after({})));
  if (refusal == Errc::ok) return {};
  return Status(refusal, "refused a connection from " + connection.peer());
}

Status ServerHandshake::judge_proof(Connection& connection, const Key& key) {
  ClientProof proof;
  SL_TRY(connection.receive(room_of(proof), Deadline::after({})));
  Verdict verdict;
  const bool proven = equal_secret(proof.proof, proof_of(kClientLabel, key, client_, server_));
  if (!proven) verdict.refusal = static_cast<std::uint16_t>(Errc::unauthenticated);
  SL_TRY(send_one(connection, image_of(verdict), Deadline::after({})));
  if (!proven) return Status(Errc::unauthenticated, connection.peer() + " does not hold our key");
  agreed_ = Agreed{client_.purpose, server_.features, client_.mount_nonce};
  return {};
}

}  // namespace starlane::net
