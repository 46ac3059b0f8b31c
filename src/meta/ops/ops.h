// Every operation of the metadata service, one function each, op_<method>: those of the tree and of
// file contents are in this folder, the others in members/, library/ and upkeep/. Any thread; each
// runs its own transactions and blocks.
#pragma once
#include <cstdint>

#include "common/status.h"
#include "meta/context.h"
#include "proto/call.h"
#include "proto/meta.pb.h"
#include "proto/meta_service.h"

namespace starlane::meta {

/// The wire's number of a call: names the kind of an outcome (OutcomeRow::method).
enum class Method : std::uint16_t {
#define SL_NUMBER(number, method, Request, Reply) method = number,
  SL_META_METHODS(SL_NUMBER)
#undef SL_NUMBER
};
constexpr std::uint16_t number_of(Method method) { return static_cast<std::uint16_t>(method); }

#define SL_DECLARE(number, method, Request, Reply)                                   \
  Status op_##method(Context& context, const Call& call, const pb::Request& request, \
                     pb::Reply* reply);
SL_META_METHODS(SL_DECLARE)
#undef SL_DECLARE

}  // namespace starlane::meta
