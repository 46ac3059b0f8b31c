#include "wire/fsck.h"

#include "wire/block_router.h"

namespace starlane::wire {

Result<keeper::FsckReport> fsck(Connection& connection, const keeper::FsckOptions& options,
                                const keeper::FsckTold& told) {
  BlockRouter router(connection.meta(), connection.network());
  return keeper::fsck(connection.meta(), router, {}, options, told);
}

}  // namespace starlane::wire
