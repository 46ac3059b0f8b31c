// attach, detach and release_lease: who may work on a branch, and when without asking.
#include "meta/library/library_rows.h"
#include "meta/members/attachments.h"
#include "meta/members/sessions.h"
#include "meta/ops/ops.h"
#include "meta/upkeep/leftovers.h"

namespace starlane::meta {
namespace {

constexpr int kHolders = 8;  // dead holders of a lease that one attach may end

Result<BranchId> find_branch(kv::Transaction& t, const pb::AttachRequest& request) {
  if (!request.volume().empty()) {
    const std::optional<kv::Row> row = SL_TRY(t.get(volume_key(request.volume())));
    if (!row) return {Errc::not_found, "there is no volume named " + request.volume()};
    return SL_TRY(VolumeRow::decode(row->value)).branch;
  }
  const std::optional<kv::Row> row =
      SL_TRY(t.get(image_key(request.image_name(), request.image_version())));
  if (!row) {
    return {Errc::not_found,
            "there is no data set " + request.image_name() + " version " + request.image_version()};
  }
  return SL_TRY(ImageRow::decode(row->value)).branch;
}

class Attach {
 public:
  /// overrule: a holder whose time is over is not asked any more.
  Attach(Context& context, kv::Transaction& t, const pb::AttachRequest& request,
         std::uint64_t epoch, bool overrule, pb::AttachReply* reply)
      : context_(context),
        t_(t),
        request_(request),
        epoch_(epoch),
        overrule_(overrule),
        reply_(reply),
        session_(request.session()),
        now_ns_(to_ns(context.clock.wall())) {}

  Status run() {
    const std::optional<kv::Row> session = SL_TRY(t_.get(session_key(session_)));
    if (!session) return {Errc::fenced, "this session was ended by the server: open a new one"};
    t_.guard(session_key(session_));
    branch_ = SL_TRY(find_branch(t_, request_));
    const std::optional<kv::Row> row = SL_TRY(t_.get(head_key(branch_)));
    head_ = SL_TRY(need<HeadRow>(row, "volume"));
    SL_TRY(check_state());
    reply_->set_branch(branch_.value);
    reply_->set_view(head_.view.value);
    reply_->set_frozen(head_.state == BranchState::frozen);
    const bool known = SL_TRY(attached_already());
    if (known) return {};
    SL_TRY(check_count());
    if (head_.state == BranchState::frozen) {
      t_.guard(head_key(branch_));
      put_attachment(Lease::shared);
      return {};
    }
    return join(row->version);
  }
  /// Who holds the lease; none: attached.
  SessionId holder() const { return holder_; }
  bool overdue() const { return overdue_; }

 private:
  Status check_state() const {
    if (head_.state == BranchState::deleting) return {Errc::not_found, "it is being deleted"};
    if (head_.kind == BranchKind::image && head_.state == BranchState::active &&
        head_.writer != session_) {
      return {Errc::not_found, "data set " + request_.image_name() + " version " +
                                   request_.image_version() + " is still being published"};
    }
    return {};
  }

  // The same answer to the same call, and a change of read_only. Taken over, it gets a new epoch,
  // which fences whatever the process before has still on its way; the session's side keeps the
  // first one, with which its locks live.
  Result<bool> attached_already() {
    const std::string key = attachment_key(branch_, session_);
    const std::optional<kv::Row> row = SL_TRY(t_.get(key));
    if (!row) return false;
    AttachmentRow attachment = SL_TRY(AttachmentRow::decode(row->value));
    if (request_.take_over()) attachment.header.epoch = epoch_;
    if (request_.take_over() || attachment.header.flags != flags()) {
      attachment.header.flags = flags();
      t_.expect(key, row->version);
      t_.put(key, attachment.encode());
    }
    reply_->set_attachment_epoch(attachment.header.epoch);
    reply_->set_exclusive(attachment.lease != Lease::shared);
    reply_->set_taken_over(request_.take_over());
    const std::optional<kv::Row> by = SL_TRY(t_.get(attached_by_key(session_, branch_)));
    if (by) reply_->set_first_epoch(SL_TRY(decode_header(by->value, "attachment")).epoch);
    return true;
  }

  Status check_count() {
    const std::vector<BranchId> had = SL_TRY(branches_of(t_, session_));
    if (had.size() < kMaxAttachments) return {};
    return {Errc::busy, "a session attaches at most 1024 volumes and data sets"};
  }

  std::uint8_t flags() const { return request_.read_only() ? kAttachedReadOnly : std::uint8_t{0}; }

  void put_attachment(Lease lease) {
    const AttachmentRow row{{flags(), epoch_}, lease, 0, 0, context_.clock.wall()};
    t_.expect(attachment_key(branch_, session_), kv::kAbsent);
    t_.put(attachment_key(branch_, session_), row.encode());
    t_.put(attached_by_key(session_, branch_), AttachedByRow{{0, epoch_}}.encode());
    reply_->set_attachment_epoch(epoch_);
    reply_->set_first_epoch(epoch_);
    reply_->set_exclusive(lease == Lease::exclusive);
  }

  Status join(kv::Version head_version) {
    std::vector<Attached> others = SL_TRY(attached_to(t_, branch_));
    for (Attached& other : others) {
      if (other.row.lease == Lease::shared) continue;
      const bool given = recall(other);
      if (!given) {
        holder_ = other.session;
        return {};
      }
    }
    std::vector<SessionId> all{session_};
    for (const Attached& other : others) all.push_back(other.session);
    count_attachments(head_, all);
    t_.expect(head_key(branch_), head_version);
    t_.put(head_key(branch_), head_.encode());
    put_attachment(all.size() == 1 ? Lease::exclusive : Lease::shared);
    return {};
  }

  // True: its time is over, and it is shared from now on. Otherwise it is asked to give it up,
  // once: each change of the row makes writers run again.
  bool recall(Attached& other) {
    const auto lease = static_cast<std::uint64_t>(Nanoseconds(context_.options.lease).count());
    const bool told = other.row.lease == Lease::recalled;
    overdue_ = told && now_ns_ >= other.row.recalled_ns + lease;
    const bool over = overdue_ && overrule_;
    if (told && !over) return false;
    if (!told) other.row.recalled_ns = now_ns_;
    other.row.lease = over ? Lease::shared : Lease::recalled;
    other.row.wanted_ns = now_ns_;
    const std::string key = attachment_key(branch_, other.session);
    t_.expect(key, other.version);
    t_.put(key, other.row.encode());
    return over;
  }

  Context& context_;
  kv::Transaction& t_;
  const pb::AttachRequest& request_;
  const std::uint64_t epoch_;
  const bool overrule_;
  pb::AttachReply* reply_;
  const SessionId session_;
  const std::uint64_t now_ns_;
  BranchId branch_;
  HeadRow head_;
  SessionId holder_;
  bool overdue_ = false;
};

std::string thing_of(const pb::AttachRequest& request) {
  if (!request.volume().empty()) return "volume " + request.volume();
  return "data set " + request.image_name() + " version " + request.image_version();
}

}  // namespace

Status op_attach(Context& context, const Call&, const pb::AttachRequest& request,
                 pb::AttachReply* reply) {
  if (request.volume().empty() == request.image_name().empty()) {
    return {Errc::invalid, "attach takes either a volume or a data set"};
  }
  const std::uint64_t epoch = SL_TRY(context.attachments.take(BranchId{}));
  bool overrule = false;
  for (int attempt = 0; attempt < kHolders; ++attempt) {
    SessionId holder;
    bool overdue = false;
    if (const Status done = kv::run(context.engine, kv::Durability::ordered,
                                    [&](kv::Transaction& t) -> Status {
                                      reply->Clear();
                                      Attach attach(context, t, request, epoch, overrule, reply);
                                      SL_TRY(attach.run());
                                      holder = attach.holder();
                                      overdue = attach.overdue();
                                      return {};
                                    });
        !done.ok())
      return done;
    if (!holder) {
      if (!reply->taken_over() || reply->frozen()) return {};
      return bury_reserved(context, BranchId{reply->branch()}, SessionId{request.session()});
    }
    const bool over = SL_TRY(end_if_silent(context, holder));
    if (!over && !overdue) break;
    overrule = overdue && !over;
  }
  return {Errc::busy,
          thing_of(request) + " is in use by another host, which was asked to share it: try again"};
}

Status op_detach(Context& context, const Call&, const pb::BranchRequest& request, pb::Empty*) {
  const BranchId branch{request.branch()};
  const SessionId session{request.session()};
  const Status detached =
      kv::run(context.engine, kv::Durability::ordered, [&](kv::Transaction& t) -> Status {
        for (const kv::Row& pin : SL_TRY(pins_by(t, branch, session))) t.del(pin.key);
        return remove_attachment(t, branch, session);
      });
  context.lock_waits.all_changed();
  return detached;
}

Status op_release_lease(Context& context, const Call&, const pb::BranchRequest& request,
                        pb::Empty*) {
  const std::string key = attachment_key(BranchId{request.branch()}, SessionId{request.session()});
  return kv::run(context.engine, kv::Durability::ordered, [&](kv::Transaction& t) -> Status {
    const std::optional<kv::Row> row = SL_TRY(t.get(key));
    if (!row) return {Errc::fenced, "the volume was detached from this session"};
    AttachmentRow attachment = SL_TRY(AttachmentRow::decode(row->value));
    if (attachment.lease == Lease::shared) return {};
    attachment.lease = Lease::shared;
    attachment.wanted_ns = to_ns(context.clock.wall());
    t.expect(key, row->version);
    t.put(key, attachment.encode());
    return {};
  });
}

}  // namespace starlane::meta
