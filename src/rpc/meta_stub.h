// MetaService over the wire: what a client or keeper calls when the metadata server is another
// process. Any thread; a failed way is unavailable, timeout or protocol. Read-only calls, and those
// that carry On.request, are repeated on a new connection when theirs broke; of the others the
// caller learns `unavailable` and must find out.
#pragma once
#include "proto/meta_service.h"
#include "rpc/channel.h"

namespace starlane::rpc {

class MetaStub final : public MetaService {
 public:
  /// `channel` is of Purpose::meta; `waits`, of Purpose::wait, carries await_locks, which would
  /// hold a worker of the server's (null: it does). Both outlive the stub.
  explicit MetaStub(Channel& channel, Channel* waits = nullptr)
      : channel_(channel), waits_(waits != nullptr ? *waits : channel) {}

#define SL_DECLARE(number, method, Request, Reply) \
  Status method(const Call& call, const pb::Request& request, pb::Reply* reply) override;
  SL_META_METHODS(SL_DECLARE)
#undef SL_DECLARE

 private:
  Status exchange(const Call& call, std::uint16_t method, const google::protobuf::Message& request,
                  bool repeatable, google::protobuf::Message* reply);

  Channel& channel_;
  Channel& waits_;
};

/// Whether doing the call twice is doing it once, whatever it carries.
bool repeatable_meta_method(std::uint16_t method);

}  // namespace starlane::rpc
