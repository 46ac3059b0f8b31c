// MetaService that waits while the server is away, by the policy of MetaRetry: for commands that
// are no mount. Any thread.
#pragma once
#include "client/session/meta_retry.h"

namespace starlane::client {

class PatientMeta final : public MetaService {
 public:
  /// retry outlives it.
  explicit PatientMeta(MetaRetry& retry) : retry_(retry) {}

#define SL_DEFINE(number, method, Request, Reply)                                          \
  Status method(const Call& call, const pb::Request& request, pb::Reply* reply) override { \
    return retry_.call(&MetaService::method, call, request, reply, /*unique=*/0);          \
  }
  SL_META_METHODS(SL_DEFINE)
#undef SL_DEFINE

 private:
  MetaRetry& retry_;
};

}  // namespace starlane::client
