// heartbeat: one small ordered transaction that renews the session, exchanges what both sides must
// know, and pins what the session holds; then outcomes that nobody will ask for again go.
#include <algorithm>
#include <set>

#include "meta/members/attachments.h"
#include "meta/members/sessions.h"
#include "meta/ops/ops.h"

namespace starlane::meta {
namespace {

constexpr std::size_t kMaxHeld = 65'536;  // unlinked files that one session holds open
constexpr std::size_t kMaxFed = 16'384;   // unlinked files told in one reply
constexpr std::size_t kOutcomePage = 1'000;
constexpr std::size_t kReservations = 2'048;  // newest ones of a session and branch, which are kept
constexpr int kOutcomePages = 32;             // of one heartbeat

std::uint64_t ns_of(Milliseconds duration) {
  return static_cast<std::uint64_t>(Nanoseconds(duration).count());
}

class Beat {
 public:
  Beat(Context& context, kv::Transaction& t, const pb::HeartbeatRequest& request,
       pb::HeartbeatReply* reply)
      : context_(context),
        t_(t),
        request_(request),
        reply_(reply),
        session_(request.session()),
        now_ns_(to_ns(context.clock.wall())) {}

  Status run() {
    const std::optional<kv::Row> row = SL_TRY(t_.get(session_key(session_)));
    if (!row) return {Errc::fenced, "this session was ended by the server: open a new one"};
    const SessionRow session = SL_TRY(SessionRow::decode(row->value));
    t_.guard(session_key(session_));
    SL_TRY(renew());
    SL_TRY(tell_attachments());
    SL_TRY(pin_held());
    SL_TRY(release_pins());
    SL_TRY(feed_unlinked(to_ns(session.opened)));
    return tell_map();
  }
  const std::vector<BranchId>& branches() const { return live_; }

 private:
  // Always greater than before, whatever wall time does: a standing value is what ends a session.
  Status renew() {
    const std::uint64_t heard = SL_TRY(last_heard(t_, session_));
    t_.max(heard_key(session_), static_cast<std::int64_t>(std::max(now_ns_, heard + 1)));
    return {};
  }

  Status tell_attachments() {
    const std::vector<kv::Row> sides =
        SL_TRY(scan_all(t_, attached_by(session_), kMaxAttachments * 2));
    for (const kv::Row& side : sides) {
      KeyReader key(side.key);
      key.u64();
      const BranchId branch{key.u64()};
      const RowHeader header = SL_TRY(decode_header(side.value, "attachment"));
      pb::AttachmentState* state = reply_->add_attachments();
      state->set_branch(branch.value);
      if (header.flags & kAttachmentGone) {
        state->set_gone(true);
      } else {
        SL_TRY(tell_attachment(branch, state));
      }
    }
    return {};
  }

  Status tell_attachment(BranchId branch, pb::AttachmentState* state) {
    const std::optional<kv::Row> row = SL_TRY(t_.get(attachment_key(branch, session_)));
    const std::optional<kv::Row> head_row = SL_TRY(t_.get(head_key(branch)));
    if (!row || !head_row) {
      state->set_gone(true);
      return {};
    }
    const HeadRow head = SL_TRY(HeadRow::decode(head_row->value));
    AttachmentRow attachment = SL_TRY(AttachmentRow::decode(row->value));
    if (head.state == BranchState::deleting) {
      state->set_gone(true);
      return {};
    }
    if (head.state == BranchState::active) live_.push_back(branch);
    if (may_have_lease(head, attachment)) {
      attachment.lease = Lease::exclusive;
      t_.guard(head_key(branch));
      t_.expect(row->key, row->version);
      t_.put(row->key, attachment.encode());
    }
    state->set_exclusive(attachment.lease != Lease::shared);
    state->set_recalled(attachment.lease == Lease::recalled);
    state->set_wants_escrow(context_.escrow_calls.heard_by(branch, session_, now_ns_));
    return {};
  }

  // Alone again, and nobody asked to come in just now.
  bool may_have_lease(const HeadRow& head, const AttachmentRow& attachment) const {
    return attachment.lease == Lease::shared && head.kind == BranchKind::volume &&
           head.state == BranchState::active && head.only_session == session_ &&
           now_ns_ >= attachment.wanted_ns + 3 * ns_of(context_.options.heartbeat);
  }

  bool attached(BranchId branch) const {
    return std::find(live_.begin(), live_.end(), branch) != live_.end();
  }

  // A pin and the freeing of the file exclude each other: this guards the inode, that expects no
  // pins.
  Status pin_held() {
    for (int i = 0; i < request_.held_inode_size(); ++i) {
      const BranchId branch{request_.held_branch(i)};
      const InodeId inode{request_.held_inode(i)};
      if (!attached(branch)) continue;
      held_.insert({branch, inode});
      const std::string key = pin_key(branch, inode, session_);
      Rows rows = SL_TRY(t_.get_many({key, inode_key(branch, inode)}));
      if (rows[0] || !rows[1]) continue;
      if (SL_TRY(InodeRow::decode(rows[1]->value)).nlink != 0) continue;
      t_.guard(rows[1]->key);
      t_.put(key, MarkRow{}.encode());
    }
    return {};
  }

  Status release_pins() {
    for (const BranchId branch : live_) {
      for (const kv::Row& pin : SL_TRY(pins_by(t_, branch, session_))) {
        if (!held_.contains({branch, InodeId{KeyReader(pin.key).u64()}})) t_.del(pin.key);
      }
    }
    return {};
  }

  // The cursor is a ready time (keys.h). It stays behind the newest possible one, since a row may
  // be committed later than its time says; the session takes what it is told twice as once.
  Status feed_unlinked(std::uint64_t opened_ns) {
    const std::uint64_t delay = 2 * ns_of(context_.options.lease);
    const std::uint64_t margin = 2 * ns_of(context_.options.heartbeat);
    std::uint64_t next = now_ns_ + delay - std::min(margin, delay);
    const std::uint64_t oldest = opened_ns + delay - std::min(margin, delay);
    const std::uint64_t from = std::max(request_.unlinked_cursor(), oldest);
    std::size_t room = kMaxFed;
    for (const BranchId branch : live_) {
      const std::uint64_t untold = SL_TRY(feed_trashed(branch, from - std::min(delay, from), room));
      next = std::min(next, untold + delay);
      const KeyRange table = table_range(Space::branch, branch, Table::unlinked);
      const std::vector<kv::Row> rows =
          SL_TRY(t_.scan({unlinked_key(branch, from, InodeId{}), table.last, room + 1}));
      const std::size_t told = std::min(rows.size(), room);
      for (std::size_t i = 0; i < told; ++i) {
        reply_->add_unlinked_branch(branch.value);
        reply_->add_unlinked_inode(SL_TRY(parse_unlinked_key(rows[i].key)).inode.value);
      }
      if (rows.size() > room) {
        next = std::min(next, SL_TRY(parse_unlinked_key(rows[told].key)).ready_ns);
      }
      room -= told;
    }
    reply_->set_unlinked_cursor(std::max(next, from));
    return {};
  }

  // The same of what others put into the trash, whose rows lie in order of deletion. Answers the
  // time of the first one that there was no room for.
  Result<std::uint64_t> feed_trashed(BranchId branch, std::uint64_t from, std::size_t room) {
    const KeyRange table = table_range(Space::branch, branch, Table::trashed);
    const std::vector<kv::Row> rows =
        SL_TRY(t_.scan({trashed_key(branch, from, InodeId{}), table.last, room + 1}));
    for (std::size_t i = 0; i < std::min(rows.size(), room); ++i) {
      if (SL_TRY(TrashedRow::decode(rows[i].value)).by == session_) continue;
      reply_->add_unlinked_branch(branch.value);
      reply_->add_unlinked_inode(SL_TRY(parse_trashed_key(rows[i].key)).inode.value);
    }
    if (rows.size() <= room) return UINT64_MAX / 2;
    return SL_TRY(parse_trashed_key(rows[room].key)).deleted_ns;
  }

  Status tell_map() {
    const std::optional<kv::Row> row = SL_TRY(t_.get(map_key(0)));
    if (row) reply_->set_map_epoch(SL_TRY(decode_header(row->value, "cluster map")).epoch);
    return {};
  }

  Context& context_;
  kv::Transaction& t_;
  const pb::HeartbeatRequest& request_;
  pb::HeartbeatReply* reply_;
  const SessionId session_;
  const std::uint64_t now_ns_;
  std::vector<BranchId> live_;  // attached, and changing
  std::set<FileKey> held_;
};

/// Deletes outcomes of the session below `oldest`, as far as one heartbeat should go; the next one
/// goes on.
Status forget_outcomes(Context& context, SessionId session, const std::vector<BranchId>& branches,
                       std::uint64_t oldest) {
  int pages = kOutcomePages;
  for (const BranchId branch : branches) {
    bool more = oldest > 0;
    while (more && pages-- > 0) {
      if (const Status done = kv::run(context.engine, kv::Durability::ordered,
                                      [&](kv::Transaction& t) -> Status {
                                        const KeyRange range =
                                            outcomes_below(branch, session, oldest);
                                        const std::vector<kv::Row> rows =
                                            SL_TRY(t.scan({range.first, range.last, kOutcomePage}));
                                        for (const kv::Row& row : rows) t.del(row.key);
                                        more = rows.size() == kOutcomePage;
                                        return {};
                                      });
          !done.ok())
        return done;
    }
  }
  return {};
}

/// Forgets old reservations of which every slice is in a file: kept so long that a commit sent
/// again is known. Looked at in one heartbeat of eight.
Status forget_reservations(Context& context, SessionId session,
                           const std::vector<BranchId>& branches) {
  const std::uint64_t turn = to_ns(context.clock.wall()) / ns_of(context.options.heartbeat);
  if (turn % 8 != session.value % 8) return {};
  for (const BranchId branch : branches) {
    const auto forget = [&](kv::Transaction& t) -> Status {
      const KeyRange range = reserved_by(branch, session);
      const std::vector<kv::Row> rows =
          SL_TRY(t.scan({range.first, range.last, 2 * kReservations}));
      for (std::size_t i = 0; i + kReservations < rows.size(); ++i) {
        const ReservedRow row = SL_TRY(ReservedRow::decode(rows[i].value));
        const std::uint64_t all =
            row.count == 64 ? UINT64_MAX : (std::uint64_t{1} << row.count) - 1;
        if (row.committed == all) t.del(rows[i].key);
      }
      return {};
    };
    SL_TRY(kv::run(context.engine, kv::Durability::ordered, forget));
  }
  return {};
}

}  // namespace

Status op_heartbeat(Context& context, const Call&, const pb::HeartbeatRequest& request,
                    pb::HeartbeatReply* reply) {
  if (request.held_branch_size() != request.held_inode_size() ||
      request.held_inode_size() > static_cast<int>(kMaxHeld)) {
    return {Errc::invalid, "a heartbeat names at most 65536 held files, each by branch and inode"};
  }
  std::vector<BranchId> branches;
  if (const Status done = kv::run(context.engine, kv::Durability::ordered,
                                  [&](kv::Transaction& t) -> Status {
                                    reply->Clear();
                                    Beat beat(context, t, request, reply);
                                    SL_TRY(beat.run());
                                    branches = beat.branches();
                                    return {};
                                  });
      !done.ok())
    return done;
  SL_TRY(forget_reservations(context, SessionId{request.session()}, branches));
  return forget_outcomes(context, SessionId{request.session()}, branches, request.oldest_request());
}

}  // namespace starlane::meta
