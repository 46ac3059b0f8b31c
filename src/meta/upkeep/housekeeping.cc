// housekeeping: one bounded step of all that nobody waits for. Sessions that fell silent end; what
// dead ones reserved, held and remembered goes; the trash is emptied when its time has come;
// unlinked files that nobody has open are freed; deleted branches lose their rows.
#include <algorithm>
#include <unordered_map>

#include "meta/members/attachments.h"
#include "meta/members/sessions.h"
#include "meta/ops/ops.h"
#include "meta/truncate.h"
#include "meta/upkeep/drop_branch.h"
#include "meta/upkeep/empty_trash.h"
#include "meta/upkeep/leftovers.h"
#include "meta/upkeep/walk.h"

namespace starlane::meta {
namespace {

constexpr std::size_t kMaxEnded = 64;       // sessions that one step ends
constexpr std::size_t kMaxFreed = 512;      // transactions of one step that free files
constexpr std::size_t kMaxListed = 16'384;  // unlinked files that one step looks at

class Step {
 public:
  Step(Context& context, pb::HousekeepingReply* reply) : context_(context), reply_(reply) {}

  /// Every part is tried, whatever befell the others; the first failure.
  Status run() {
    keep_first(end_silent_sessions());
    keep_first(clear_dead_session());
    keep_first(empty_trash(context_, reply_));
    keep_first(free_unlinked());
    keep_first(drop_branches(context_, reply_));
    return first_;
  }

 private:
  void keep_first(Status status) {
    if (first_.ok()) first_ = std::move(status);
  }

  Status end_silent_sessions() {
    const std::vector<SessionId> silent = SL_TRY(find_silent());
    for (const SessionId session : silent) {
      if (reply_->expired_sessions() >= kMaxEnded) {
        reply_->set_more(true);
        return {};
      }
      const bool over = SL_TRY(end_if_silent(context_, session));
      if (over) reply_->set_expired_sessions(reply_->expired_sessions() + 1);
    }
    return {};
  }

  Result<std::vector<SessionId>> find_silent() {
    std::vector<SessionId> living;
    std::vector<SessionId> silent;
    const Nanoseconds now = context_.clock.boot();
    const auto look = [&](kv::Transaction& t) -> Status {
      living.clear();
      silent.clear();
      const KeyRange range = table_range(Space::system, BranchId{}, Table::session);
      for (const kv::Row& row : SL_TRY(scan_all(t, range, kMaxSessions * 2))) {
        const SessionId session{KeyReader(row.key).u64()};
        living.push_back(session);
        const std::uint64_t heard = SL_TRY(last_heard(t, session));
        if (context_.watch.silent(session, heard, now, context_.options.lease))
          silent.push_back(session);
      }
      return {};
    };
    SL_TRY(context_.read(look));
    context_.watch.keep_only(living);
    return silent;
  }

  Status clear_dead_session() {
    std::vector<SessionId> dead;
    if (const Status done = context_.read([&](kv::Transaction& t) -> Status {
          dead.clear();
          const KeyRange range = table_range(Space::system, BranchId{}, Table::dead_session);
          for (const kv::Row& row : SL_TRY(t.scan({range.first, range.last, 2}))) {
            dead.push_back(SessionId{KeyReader(row.key).u64()});
          }
          return {};
        });
        !done.ok())
      return done;
    if (dead.empty()) return {};
    const bool cleared = SL_TRY(clear_session_step(context_, dead.front(), reply_));
    if (!cleared || dead.size() > 1) reply_->set_more(true);
    return {};
  }

  // The rows of U lie in order of the time from which they may go.
  Status free_unlinked() {
    const std::uint64_t now = to_ns(context_.clock.wall());
    std::vector<std::string> ready;
    if (const Status done = context_.read([&](kv::Transaction& t) -> Status {
          ready.clear();
          heard_.clear();
          BranchId first;
          for (;;) {
            const std::vector<BranchId> branches = SL_TRY(branches_from(t, first, kBranchPage));
            for (const BranchId branch : branches) SL_TRY(list_ready(t, branch, now, &ready));
            if (branches.size() < kBranchPage || ready.size() > kMaxFreed) return {};
            first = BranchId{branches.back().value + 1};
          }
        });
        !done.ok())
      return done;
    for (std::size_t i = 0; i < ready.size() && i < kMaxFreed; ++i) {
      const Result<bool> done = free_unlinked_step(context_, ready[i]);
      if (done.code() == Errc::busy || done.code() == Errc::conflict ||
          done.code() == Errc::not_found)
        continue;
      if (!done.ok()) {  // Of this file; the others go on.
        keep_first(done.status());
        continue;
      }
      if (*done) reply_->set_freed_inodes(reply_->freed_inodes() + 1);
      if (!*done) reply_->set_more(true);
    }
    if (ready.size() > kMaxFreed) reply_->set_more(true);
    return {};
  }

  Status list_ready(kv::Transaction& t, BranchId branch, std::uint64_t now,
                    std::vector<std::string>* ready) {
    const std::string first = table_range(Space::branch, branch, Table::unlinked).first;
    const std::vector<kv::Row> rows =
        SL_TRY(t.scan({first, unlinked_key(branch, now + 1, InodeId{}), kMaxListed}));
    for (const kv::Row& row : rows) {
      if (ready->size() > kMaxFreed) return {};
      const UnlinkedKey key = SL_TRY(parse_unlinked_key(row.key));
      const UnlinkedRow unlinked = SL_TRY(UnlinkedRow::decode(row.value));
      const bool settled = SL_TRY(heard_since(t, unlinked.by, key.ready_ns, now));
      if (!settled) continue;
      const KeyRange pins = pins_of(branch, key.inode);
      if (SL_TRY(t.scan({pins.first, pins.last, 1})).empty()) ready->push_back(row.key);
    }
    return {};
  }

  // Of a file that its only user unlinked: an open that raced with that is pinned by one of the
  // next two heartbeats.
  Result<bool> heard_since(kv::Transaction& t, SessionId by, std::uint64_t ready,
                           std::uint64_t now) {
    const auto lease = static_cast<std::uint64_t>(Nanoseconds(context_.options.lease).count());
    const auto heartbeat =
        static_cast<std::uint64_t>(Nanoseconds(context_.options.heartbeat).count());
    if (!by || now >= ready + 2 * lease) return true;
    const auto [at, added] = heard_.try_emplace(by, 0);
    if (added) at->second = SL_TRY(last_heard(t, by));
    if (at->second == 0) return true;  // It is over.
    return at->second >= ready + heartbeat;
  }

  Context& context_;
  pb::HousekeepingReply* reply_;
  Status first_;
  std::unordered_map<SessionId, std::uint64_t> heard_;
};

}  // namespace

Status op_housekeeping(Context& context, const Call&, const pb::KeeperRequest&,
                       pb::HousekeepingReply* reply) {
  reply->Clear();
  return Step(context, reply).run();
}

}  // namespace starlane::meta
