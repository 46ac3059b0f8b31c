// Rows to messages and back: attributes, times, slice entries. What a message holds is checked by
// the operations. Pure.
#pragma once
#include "meta/context.h"
#include "meta/nodes.h"
#include "meta/rows.h"
#include "proto/meta.pb.h"

namespace starlane::meta {

Access access_of(const pb::On& on);

/// invalid when nanoseconds are not below 10^9.
Result<WallTime> time_of(const pb::Time& time);
void put_time(const WallTime& time, pb::Time* out);

/// `totals` of a directory; of others not looked at.
void put_attributes(InodeId inode, const InodeRow& row, const DirectoryTotals& totals,
                    pb::Attributes* out);

/// With the totals that a directory needs read from `t`.
Status read_attributes(kv::Transaction& t, BranchId branch, InodeId inode, const InodeRow& row,
                       pb::Attributes* out);

void put_entry(const SlicesRow& row, const Entry& entry, pb::SliceEntry* out);
/// What a client says of a new entry, checked for being possible; `owner` and `birth` are the
/// server's to say.
Result<Entry> entry_of(const pb::SliceEntry& entry);

}  // namespace starlane::meta
