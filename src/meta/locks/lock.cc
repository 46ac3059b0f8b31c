// lock, test_lock, stop_waiting, await_locks: advisory locks, all of a file in one row, which
// orders them. A lock lives as long as the attachment under which it was taken, whichever process
// of the session's has that: one that ended with its session is passed over, and taken out of the
// row by whoever changes that next.
#include <algorithm>

#include "meta/locks/living_locks.h"
#include "meta/messages.h"
#include "meta/ops/ops.h"

namespace starlane::meta {
namespace {

constexpr Nanoseconds kLongestAwait = std::chrono::seconds(1);

Result<FileLock> lock_of(const pb::LockRequest& request) {
  const pb::FileLock& said = request.lock();
  if (request.on().session() == 0 || request.on().attachment_epoch() == 0)
    return {Errc::invalid, "a lock needs a session that has the volume attached"};
  if (said.start() > said.end() || said.end() > kLockToEnd)
    return {Errc::invalid, "a lock's range ends before it starts, or beyond 2^63"};
  if (said.kind() != pb::FileLock::RECORD && said.kind() != pb::FileLock::FLOCK)
    return {Errc::invalid, "a lock of no known kind"};
  if (said.type() < pb::FileLock::READ || said.type() > pb::FileLock::UNLOCK)
    return {Errc::invalid, "a lock of no known type"};
  FileLock lock;
  lock.of = {SessionId{request.on().session()}, said.owner()};
  lock.pid = said.pid();
  lock.kind = static_cast<LockKind>(said.kind());
  lock.type = static_cast<LockType>(said.type());
  if (lock.kind == LockKind::flock) return lock;
  lock.start = said.start();
  lock.end = said.end();
  return lock;
}

void put_lock(const FileLock& lock, pb::FileLock* out) {
  out->set_kind(static_cast<pb::FileLock::Kind>(lock.kind));
  out->set_type(static_cast<pb::FileLock::Type>(lock.type));
  out->set_owner(lock.of.owner);
  out->set_start(lock.start);
  out->set_end(lock.end);
  out->set_pid(lock.pid);
}

/// One attempt at a lock or unlock.
class Attempt {
 public:
  explicit Attempt(const FileLock& wanted) : wanted_(wanted) {}

  Status run(Change& change, const Rows& rows, InodeId inode, pb::LockReply* reply) {
    changed_ = false;
    if (!rows[0]) return {Errc::not_found, "no such file or directory"};
    const InodeRow file = SL_TRY(InodeRow::decode(rows[0]->value));
    wanted_.attachment_epoch = SL_TRY(first_epoch(rows[2]));
    std::vector<FileLock> locks = SL_TRY(living_locks(change.t, change.branch(), rows[1]));
    const std::vector<FileLock> before = locks;
    blockers_ = conflicts_of(locks, wanted_);
    if (blockers_.empty()) {
      set_range(locks, wanted_);
      reply->set_granted(true);
      reply->set_lives_with(wanted_.attachment_epoch);
      if (wanted_.type != LockType::unlock)
        put_attributes(inode, file, {}, reply->mutable_attributes());
    } else {
      SL_TRY(give_up_flock(locks));
    }
    if (locks.size() > kMaxLocksOfFile && locks.size() > before.size())
      return {Errc::no_locks, "a file has at most 4096 locks"};
    changed_ = locks != before;
    put(change, inode, rows[1], std::move(locks));
    return {};
  }
  const std::vector<FileLock>& blockers() const { return blockers_; }
  bool changed() const { return changed_; }

 private:
  // As flock(2): a conversion is a release and another attempt.
  Status give_up_flock(std::vector<FileLock>& locks) const {
    const bool converts = wanted_.kind == LockKind::flock &&
                          std::any_of(locks.begin(), locks.end(), [&](const FileLock& lock) {
                            return lock.same_owner(wanted_);
                          });
    if (!converts) return {Errc::would_block, "another has a lock on it"};
    FileLock none = wanted_;
    none.type = LockType::unlock;
    set_range(locks, none);
    return {};
  }

  static void put(Change& change, InodeId inode, const std::optional<kv::Row>& row,
                  std::vector<FileLock> locks) {
    const std::string key = lock_key(change.branch(), inode);
    change.t.expect(key, row ? row->version : kv::kAbsent);
    if (!locks.empty()) {
      change.t.put(key, LockRow{change.header(), std::move(locks)}.encode());
    } else if (row) {
      change.t.del(key);
    }
  }

  FileLock wanted_;
  std::vector<FileLock> blockers_;
  bool changed_ = false;
};

Status lock_once(Context& context, const pb::LockRequest& request, Attempt& attempt,
                 pb::LockReply* reply) {
  Access access = access_of(request.on());
  access.advisory = true;
  const InodeId inode{request.inode()};
  const std::vector<std::string> keys = {inode_key(access.branch, inode),
                                         lock_key(access.branch, inode),
                                         attached_by_key(access.session, access.branch)};
  const Status done = change_branch(
      context, access, number_of(Method::lock), keys, reply,
      [&](Change& change, Rows& rows) { return attempt.run(change, rows, inode, reply); });
  if (done.ok() && attempt.changed()) context.lock_waits.changed({access.branch, inode});
  return done;
}

}  // namespace

Status op_lock(Context& context, const Call&, const pb::LockRequest& request,
               pb::LockReply* reply) {
  const FileLock wanted = SL_TRY(lock_of(request));
  Attempt attempt(wanted);
  if (request.wait() == 0) return lock_once(context, request, attempt, reply);

  const LockWaits::Waiter waiter{wanted.of, request.wait()};
  const FileKey file{BranchId{request.on().branch()}, InodeId{request.inode()}};
  SL_TRY(context.lock_waits.enter(waiter, file, context.clock.boot()));
  const Status done = lock_once(context, request, attempt, reply);
  const bool waits = done.code() == Errc::would_block || (done.ok() && !reply->granted());
  if (!waits) {
    context.lock_waits.leave(waiter);
    return done;
  }
  // As Linux: nobody looks for a circle of flocks.
  if (wanted.kind == LockKind::flock ||
      context.lock_waits.block(waiter, wanted.pid, attempt.blockers(), context.clock.boot()))
    return done;
  context.lock_waits.leave(waiter);
  return {Errc::deadlock, "its holder waits for a lock of the one that asks"};
}

Status op_test_lock(Context& context, const Call&, const pb::LockRequest& request,
                    pb::TestLockReply* reply) {
  const FileLock wanted = SL_TRY(lock_of(request));
  const BranchId branch{request.on().branch()};
  const std::string key = lock_key(branch, InodeId{request.inode()});
  return context.read([&](kv::Transaction& t) -> Status {
    reply->Clear();
    const std::optional<kv::Row> row = SL_TRY(t.get(key));
    const std::vector<FileLock> locks = SL_TRY(living_locks(t, branch, row));
    const std::vector<FileLock> conflicts = conflicts_of(locks, wanted);
    if (!conflicts.empty()) put_lock(conflicts.front(), reply->mutable_conflict());
    return {};
  });
}

Status op_stop_waiting(Context& context, const Call&, const pb::StopWaitingRequest& request,
                       pb::Empty*) {
  context.lock_waits.leave({{SessionId{request.session()}, request.owner()}, request.wait()});
  return {};
}

Status op_await_locks(Context& context, const Call& call, const pb::SessionRequest& request,
                      pb::Empty*) {
  const Nanoseconds longest = std::min<Nanoseconds>(call.deadline.left() / 2, kLongestAwait);
  context.lock_waits.await(SessionId{request.session()}, Deadline::after(longest));
  return {};
}

}  // namespace starlane::meta
