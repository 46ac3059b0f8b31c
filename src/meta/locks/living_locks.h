// Which of a file's locks live: those whose attachments are there still, under the epoch that they
// were taken with. The others have ended and are passed over.
#pragma once
#include <optional>
#include <vector>

#include "kv/engine.h"
#include "meta/locks/lock_list.h"

namespace starlane::meta {

/// Of the session's side of an attachment: the epoch with which its locks live and end, which
/// another process of the session takes over with them. 0: it has ended.
Result<std::uint64_t> first_epoch(const std::optional<kv::Row>& attached_by);

/// Locks of the row whose attachments are there still. An attachment that ended never comes back,
/// so that one seen gone needs no guard; one seen alive is asked about again before it matters.
Result<std::vector<FileLock>> living_locks(kv::Transaction& t, BranchId branch,
                                           const std::optional<kv::Row>& row);

}  // namespace starlane::meta
