// Which session has which branch attached, and who holds the lease that makes calls unnecessary:
// what attach, heartbeat, the end of a session and the deletion of a volume share. All changes of
// one branch's attachments go through its head row, which orders them. Any thread.
#pragma once
#include <string>
#include <vector>

#include "meta/context.h"
#include "meta/members/member_rows.h"

namespace starlane::meta {

inline constexpr std::size_t kMaxAttachments = 1024;  // of one session
inline constexpr std::size_t kMaxAttached = 16'384;   // sessions of one branch

struct Attached {
  SessionId session;
  AttachmentRow row;
  kv::Version version = kv::kAbsent;
};
/// All attachments of a branch, as `t` sees them.
Result<std::vector<Attached>> attached_to(kv::Transaction& t, BranchId branch);

/// Branches that the session has, or had, attached.
Result<std::vector<BranchId>> branches_of(kv::Transaction& t, SessionId session);

/// Takes the attachment away in `t`: writes that carry it are fenced. Nothing happens if there is
/// none.
Status remove_attachment(kv::Transaction& t, BranchId branch, SessionId session);

/// The branch's row of counts after the attachments became these.
void count_attachments(HeadRow& head, const std::vector<SessionId>& attached);

/// The session's pins in a branch: few files are unlinked and open at once, of all sessions
/// together.
Result<std::vector<kv::Row>> pins_by(kv::Transaction& t, BranchId branch, SessionId session);

/// A range of small rows, in one piece; busy when it holds more than `limit`.
Result<std::vector<kv::Row>> scan_all(kv::Transaction& t, const KeyRange& range, std::size_t limit);

}  // namespace starlane::meta
