#include "meta/ops/ops.h"

namespace starlane::meta {

Status op_flush(Context& context, const Call&, const pb::FlushRequest&, pb::Empty*) {
  return context.engine.flush();
}

}  // namespace starlane::meta
