// The namespace: MetaService over a key-value engine. Stateless but for ranges of ids, so several
// may serve one engine. Any thread; the engine and the clock outlive it.
#pragma once
#include "meta/context.h"
#include "proto/meta_service.h"

namespace starlane::meta {

class Server final : public MetaService {
 public:
  Server(kv::Engine& engine, const Clock& clock, Options options);

#define SL_DECLARE(number, method, Request, Reply) \
  Status method(const Call& call, const pb::Request& request, pb::Reply* reply) override;
  SL_META_METHODS(SL_DECLARE)
#undef SL_DECLARE

 private:
  Context context_;
};

}  // namespace starlane::meta
