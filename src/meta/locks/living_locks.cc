#include "meta/locks/living_locks.h"

#include <algorithm>
#include <set>

#include "meta/context.h"
#include "meta/keys.h"
#include "meta/members/member_rows.h"

namespace starlane::meta {

Result<std::uint64_t> first_epoch(const std::optional<kv::Row>& attached_by) {
  if (!attached_by) return 0;
  const RowHeader header = SL_TRY(decode_header(attached_by->value, "attachment"));
  return (header.flags & kAttachmentGone) != 0 ? 0 : header.epoch;
}

Result<std::vector<FileLock>> living_locks(kv::Transaction& t, BranchId branch,
                                           const std::optional<kv::Row>& row) {
  std::vector<FileLock> locks;
  if (!row) return locks;
  LockRow decoded = SL_TRY(LockRow::decode(row->value));
  std::set<SessionId> sessions;
  for (const FileLock& lock : decoded.locks) sessions.insert(lock.of.session);
  std::vector<std::string> keys;
  for (const SessionId session : sessions) keys.push_back(attached_by_key(session, branch));
  const Rows attachments = SL_TRY(t.get_many(keys));
  std::set<std::pair<SessionId, std::uint64_t>> living;
  std::size_t at = 0;
  for (const SessionId session : sessions) {
    const std::uint64_t first = SL_TRY(first_epoch(attachments[at++]));
    if (first != 0) living.emplace(session, first);
  }
  std::copy_if(decoded.locks.begin(), decoded.locks.end(), std::back_inserter(locks),
               [&](const FileLock& lock) {
                 return living.contains({lock.of.session, lock.attachment_epoch});
               });
  return locks;
}

}  // namespace starlane::meta
