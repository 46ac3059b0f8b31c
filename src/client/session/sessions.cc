#include "client/session/sessions.h"

#include <algorithm>

#include "client/takeover/ledger.h"
#include "common/log.h"
#include "common/process_id.h"
#include "common/rng.h"

namespace starlane::client {
namespace {

std::string name_of(const AttachTarget& target) {
  return target.volume.empty() ? target.image_name + "/" + target.image_version : target.volume;
}

/// Unlike that of any other session: the server answers a repeated open with the same session.
std::string fresh_nonce() {
  return std::to_string(random_seed()) + "-" + std::to_string(random_seed());
}

/// What answers that an attachment can not come back.
bool is_final(Errc code) {
  return code == Errc::not_found || code == Errc::access || code == Errc::not_permitted;
}

}  // namespace

struct Sessions::Opened {
  pb::OpenSessionReply reply;
  Nanoseconds sent_at;
};

Sessions::Sessions(MetaService& meta, const Clock& clock, SessionOptions options)
    : meta_(meta),
      clock_(clock),
      options_(std::move(options)),
      retry_(meta, signals_, options_.retry) {}

Result<std::unique_ptr<Sessions>> Sessions::open(MetaService& meta, const Clock& clock,
                                                 SessionOptions options, Nanoseconds patience) {
  std::unique_ptr<Sessions> sessions(new Sessions(meta, clock, std::move(options)));
  Ledger* ledger = sessions->options_.ledger;
  std::string nonce;
  if (ledger != nullptr) {
    sessions->requests_.start(ledger->generation());
    if (const auto known = ledger->get({Ledger::Kind::session})) nonce = text_of(*known);
  }
  const Opened opened =
      SL_TRY(sessions->open_session(nonce.empty() ? sessions->new_nonce() : nonce, patience));
  {
    MutexLock lock(sessions->m_);
    sessions->session_ = SessionId(opened.reply.session());
    sessions->lease_ = Milliseconds(opened.reply.lease_ms());
    sessions->heartbeat_ = Milliseconds(opened.reply.heartbeat_ms());
    sessions->alive_until_ = opened.sent_at + sessions->lease_;
  }
  sessions->recalls_ = std::make_unique<ThreadPool>(ThreadPool::Options{
      .name = "sl-recall", .threads = sessions->options_.recall_threads, .queue_limit = 4096});
  sessions->thread_ = std::thread([raw = sessions.get()] { raw->run(); });
  return sessions;
}

Sessions::~Sessions() { close(); }

/// Written down before the server hears of it, so that no session is left behind.
std::string Sessions::new_nonce() {
  std::string nonce = fresh_nonce();
  if (options_.ledger != nullptr) options_.ledger->note({Ledger::Kind::session}, bytes_of(nonce));
  return nonce;
}

Result<Sessions::Opened> Sessions::open_session(const std::string& nonce, Nanoseconds patience) {
  pb::OpenSessionRequest request;
  request.set_host(options_.host);
  request.set_purpose(options_.purpose);
  request.set_nonce(nonce);
  if (options_.ledger == nullptr) {  // nobody goes on with it
    const ProcessId process = this_process();
    request.mutable_process()->set_space(process.space);
    request.mutable_process()->set_pid(process.pid);
    request.mutable_process()->set_started(process.started);
  }
  const Deadline until =
      patience == Nanoseconds::max() ? Deadline::never() : Deadline::after(patience);
  Opened opened;
  SL_TRY(retry_.run(
      [&](Deadline deadline) {
        opened.sent_at = clock_.boot();
        Call call;
        call.deadline = deadline.left() < until.left() ? deadline : until;
        opened.reply.Clear();
        Status status = meta_.open_session(call, request, &opened.reply);
        const bool waits = status.code() == Errc::unavailable || status.code() == Errc::timeout;
        if (waits && until.passed()) return Status(Errc::no_device, status.text());
        return status;
      },
      0));
  return opened;
}

void Sessions::listen(SessionListener* listener) {
  MutexLock lock(m_);
  listener_ = listener;
  wake_ = listener != nullptr;  // what was taken over is said to be held
  changed_.notify_all();
  while (listener == nullptr && in_listener_ != 0) changed_.wait(m_);
}

SessionListener* Sessions::enter_listener() {
  MutexLock lock(m_);
  if (listener_ != nullptr) ++in_listener_;
  return listener_;
}

void Sessions::leave_listener() {
  MutexLock lock(m_);
  --in_listener_;
  changed_.notify_all();
}

void Sessions::close() {
  {
    MutexLock lock(m_);
    if (closed_) return;
    closed_ = true;
    stopping_ = true;
    changed_.notify_all();
  }
  signals_.stop();
  if (thread_.joinable()) thread_.join();
  recalls_.reset();
  SessionId session;
  {
    MutexLock lock(m_);
    session = session_;
    for (auto& [branch, attached] : attached_) make_shared(*attached);
  }
  if (!session) return;
  pb::SessionRequest request;
  request.set_session(session.value);
  pb::Empty reply;
  Call call;
  call.session = session;
  call.deadline = Deadline::after(std::chrono::seconds(2));
  const Status status = meta_.close_session(call, request, &reply);  // else it ends with its lease
  if (!status.ok())
    SL_LOG(warn, "event=session_close_failed session={} cause=\"{}\"", session.value,
           status.to_string());
}

SessionId Sessions::id() {
  MutexLock lock(m_);
  return session_;
}

// ---- Attaching ----

Result<pb::AttachReply> Sessions::ask_attach(const AttachTarget& target, SessionId session,
                                             bool take_over) {
  pb::AttachRequest request;
  request.set_session(session.value);
  request.set_volume(target.volume);
  request.set_image_name(target.image_name);
  request.set_image_version(target.image_version);
  request.set_read_only(target.read_only);
  request.set_take_over(take_over);
  Call call;
  call.session = session;
  call.deadline = Deadline::after(options_.retry.attempt_timeout);
  pb::AttachReply reply;
  SL_TRY(meta_.attach(call, request, &reply));
  if (reply.first_epoch() == 0)  // it would not fence a dead process's writes, nor keep its locks
    return Status(Errc::protocol,
                  "the metadata server is of an earlier build than this mount: upgrade it first");
  return reply;
}

Result<std::shared_ptr<Attached>> Sessions::attach(const AttachTarget& target,
                                                   std::uint64_t unique) {
  const std::string name = name_of(target) + (target.volume.empty() ? "" : " volume");
  {
    // One at a time for a target: two would get two attachment epochs, of which one is already old.
    MutexLock lock(m_);
    while (attaching_.contains(name)) {
      changed_.wait_for(m_, Milliseconds(100));
      SL_TRY(signals_.check(unique));
    }
    for (const auto& [branch, attached] : attached_)
      if (attached->target == target && !attached->gone()) return attached;
    attaching_.insert(name);
  }
  struct Done {
    Sessions& of;
    const std::string& name;
    ~Done() {
      MutexLock lock(of.m_);
      of.attaching_.erase(name);
      of.changed_.notify_all();
    }
  } done{*this, name};
  for (int tries = 0;; ++tries) {
    const SessionId session = id();
    Result<pb::AttachReply> reply = ask_attach(target, session);
    if (reply.ok()) {
      MutexLock lock(m_);
      auto attached = std::make_shared<Attached>(target, BranchId(reply->branch()),
                                                 ViewId(reply->view()), reply->frozen());
      auto [at, added] = attached_.emplace(attached->branch, attached);
      if (!added && at->second->gone()) at->second = attached;
      adopt(*at->second, *reply, session);
      return at->second;
    }
    const Errc code = reply.code();
    if (code == Errc::fenced) fenced(BranchId(), Attachment{.session = session});
    const bool waits = code == Errc::busy || code == Errc::conflict || code == Errc::unavailable ||
                       code == Errc::timeout || code == Errc::fenced;
    if (!waits) return reply.status();
    if (tries == 20)
      SL_LOG(info, "event=attach_waits target={} cause=\"{}\"", name_of(target),
             reply.status().to_string());
    SL_TRY(signals_.sleep(unique, Milliseconds(std::min(5 << std::min(tries, 5), 100))));
  }
}

Sessions::Taken Sessions::take_over(const AttachTarget& target, BranchId branch, ViewId view,
                                    bool frozen) {
  const auto attached = std::make_shared<Attached>(target, branch, view, frozen);
  for (int tries = 0;; ++tries) {
    const SessionId session = id();
    const Result<pb::AttachReply> reply = ask_attach(target, session, true);
    if (reply.ok() && BranchId(reply->branch()) == branch) {
      MutexLock lock(m_);
      attached_[branch] = attached;
      adopt(*attached, *reply, session);
      attached->promised_absence(clock_.boot() + std::chrono::seconds(1));  // as the one before did
      return {attached, reply->taken_over()};
    }
    if (reply.code() == Errc::fenced) fenced(BranchId(), Attachment{.session = session});
    if (tries == 20)
      SL_LOG(warn, "event=take_over_waits target={} cause=\"{}\"", name_of(target),
             reply.status().to_string());
    if (reply.ok() || is_final(reply.code()) ||
        !signals_.sleep(0, Milliseconds(std::min(5 << std::min(tries, 5), 100))).ok())
      return {gone(target, branch, view, frozen), false};
  }
}

std::shared_ptr<Attached> Sessions::gone(const AttachTarget& target, BranchId branch, ViewId view,
                                         bool frozen) {
  auto attached = std::make_shared<Attached>(target, branch, view, frozen);
  attached->gone_.store(true);
  return attached;
}

void Sessions::adopt(Attached& attached, const pb::AttachReply& reply, SessionId session) {
  attached.session_ = session;
  attached.epoch_ = reply.attachment_epoch();
  attached.locks_epoch_.store(reply.first_epoch(), std::memory_order_release);
  attached.usable_ = session == session_;
  attached.recalling_ = false;
  make_shared(attached);
  if (reply.exclusive() && attached.usable_) {
    attached.until_.store(alive_until_.count());
    attached.since_.store(clock_.boot().count());
  }
  if (!attached.usable_) wake_ = true;
  changed_.notify_all();
}

void Sessions::make_shared(Attached& attached) { attached.since_.store(0); }

void Sessions::detach(BranchId branch) {
  pb::BranchRequest request;
  {
    MutexLock lock(m_);
    const auto at = attached_.find(branch);
    if (at == attached_.end()) return;
    make_shared(*at->second);
    at->second->gone_.store(true);
    attached_.erase(at);
    request.set_session(session_.value);
    changed_.notify_all();
  }
  request.set_branch(branch.value);
  Call call;
  call.session = SessionId(request.session());
  call.deadline = Deadline::after(options_.retry.attempt_timeout);
  pb::Empty reply;
  const Status status =
      meta_.detach(call, request, &reply);  // else the server forgets it with the session
  if (!status.ok() && status.code() != Errc::not_found)
    SL_LOG(debug, "event=detach_failed branch={} cause=\"{}\"", branch.value, status.to_string());
}

void Sessions::mark_gone(const std::shared_ptr<Attached>& attached) {
  {
    MutexLock lock(m_);
    make_shared(*attached);
    if (attached->gone_.exchange(true)) return;
    const auto at = attached_.find(attached->branch);
    if (at != attached_.end() && at->second == attached) attached_.erase(at);
    changed_.notify_all();
  }
  SL_LOG(info, "event=detached target={} branch={}", name_of(attached->target),
         attached->branch.value);
  if (SessionListener* listener = enter_listener()) {
    listener->gone(attached->branch);
    leave_listener();
  }
}

Result<Attachment> Sessions::attachment(BranchId branch, std::uint64_t unique) {
  MutexLock lock(m_);
  while (true) {
    const auto at = attached_.find(branch);
    if (at == attached_.end() || at->second->gone())
      return {Errc::stale_handle, "the volume is not attached any more"};
    const Attached& attached = *at->second;
    if (attached.usable_ && attached.session_ == session_)
      return Attachment{attached.session_, attached.epoch_, attached.frozen};
    if (closed_) return {Errc::unavailable, "the client is stopping"};
    changed_.wait_for(m_, Milliseconds(100));
    SL_TRY(signals_.check(unique));
  }
}

void Sessions::fenced(BranchId branch, const Attachment& under) {
  MutexLock lock(m_);
  if (under.session != session_) return;
  const auto at = attached_.find(branch);
  if (at != attached_.end()) {
    Attached& attached = *at->second;
    if (attached.session_ != under.session || attached.epoch_ != under.epoch) return;
    make_shared(attached);
    attached.usable_ = false;
  }
  wake_ = true;
  changed_.notify_all();
}

// ---- The heartbeat ----

Nanoseconds Sessions::pause() {
  const Nanoseconds full = std::min<Nanoseconds>(heartbeat_, options_.longest_heartbeat);
  return last_beat_failed_ ? std::min<Nanoseconds>(full, Milliseconds(200)) : full;
}

void Sessions::run() {
  name_this_thread("sl-session");
  while (true) {
    {
      MutexLock lock(m_);
      const Deadline next = Deadline::after(pause());
      while (!stopping_ && !wake_ && !next.passed()) changed_.wait_for(m_, next.left());
      if (stopping_) return;
      wake_ = false;
    }
    const Status status = beat();
    const bool all = status.ok() && attach_again();
    MutexLock lock(m_);
    last_beat_failed_ = !status.ok() || !all;
  }
}

Status Sessions::beat_now() {
  SL_TRY(beat());
  attach_again();
  return {};
}

/// Of a session that was taken over, files are held whose owner has not been told to us yet: a beat
/// would give them up.
bool Sessions::may_beat() {
  MutexLock lock(m_);
  return listener_ != nullptr || options_.ledger == nullptr || !options_.ledger->taken_over();
}

Status Sessions::beat() {
  if (!may_beat()) return {};
  pb::HeartbeatRequest request;
  if (SessionListener* listener = enter_listener()) {
    for (const FileKey& file : listener->held_unlinked()) {
      request.add_held_branch(file.branch.value);
      request.add_held_inode(file.inode.value);
    }
    leave_listener();
  }
  MutexLock one_at_a_time(beating_);
  const SessionId session = id();
  request.set_session(session.value);
  request.set_oldest_request(requests_.oldest());
  request.set_unlinked_cursor(unlinked_cursor_);
  Call call;
  call.session = session;
  call.deadline = Deadline::after(
      std::max<Nanoseconds>(options_.longest_heartbeat * 2, std::chrono::seconds(2)));
  pb::HeartbeatReply reply;
  const Nanoseconds sent_at = clock_.boot();
  Status status = meta_.heartbeat(call, request, &reply);
  if (status.ok()) {
    unlinked_cursor_ = reply.unlinked_cursor();
    apply(reply, session, sent_at);
  } else if (status.code() == Errc::fenced || status.code() == Errc::not_found) {
    renew(session);
    status = {};
  }
  return status;
}

void Sessions::apply(const pb::HeartbeatReply& reply, SessionId session, Nanoseconds sent_at) {
  map_epoch_.store(reply.map_epoch(), std::memory_order_relaxed);
  std::vector<std::shared_ptr<Attached>> gone;
  {
    MutexLock lock(m_);
    if (session != session_) return;
    alive_until_ = std::max(alive_until_, sent_at + lease_);
    const Nanoseconds now = clock_.boot();
    for (const pb::AttachmentState& state : reply.attachments()) {
      const auto at = attached_.find(BranchId(state.branch()));
      if (at == attached_.end() || at->second->session_ != session) continue;
      if (state.gone())
        gone.push_back(at->second);
      else
        apply_attachment(state, now);
    }
  }
  for (const auto& attached : gone) mark_gone(attached);
  SessionListener* listener = enter_listener();
  if (listener == nullptr) return;
  const int unlinked = std::min(reply.unlinked_branch_size(), reply.unlinked_inode_size());
  for (int i = 0; i < unlinked; ++i)
    listener->unlinked({BranchId(reply.unlinked_branch(i)), InodeId(reply.unlinked_inode(i))});
  for (const pb::AttachmentState& state : reply.attachments())
    if (state.wants_escrow()) listener->escrow_wanted(BranchId(state.branch()));
  leave_listener();
}

void Sessions::apply_attachment(const pb::AttachmentState& state, Nanoseconds now) {
  const std::shared_ptr<Attached>& attached = attached_.at(BranchId(state.branch()));
  if (!attached->usable_) return;
  if (state.recalled()) return start_recall(attached);
  if (!state.exclusive()) return make_shared(*attached);
  if (attached->recalling_) return;
  // What is believed needs the session alive at the server: a beat sent before a recall was heard
  // says so.
  attached->until_.store(alive_until_.count());
  if (attached->since_.load() == 0) attached->since_.store(now.count());
}

// ---- Recalls ----

void Sessions::start_recall(const std::shared_ptr<Attached>& attached) {
  make_shared(*attached);
  if (attached->recalling_ || stopping_) return;
  attached->recalling_ = true;
  const Attachment under{attached->session_, attached->epoch_, attached->frozen};
  const Status queued =
      recalls_->try_submit([this, attached, under] { carry_out_recall(attached, under); });
  if (!queued.ok()) attached->recalling_ = false;  // the next heartbeat asks again
}

void Sessions::await_reliance(const Attached& attached) {
  while (attached.relying_.load() != 0 && signals_.sleep(0, Milliseconds(1)).ok()) {
  }
  const Nanoseconds absence_left = Nanoseconds(attached.absence_until_.load()) - clock_.boot();
  if (absence_left > Nanoseconds::zero()) (void)signals_.sleep(0, absence_left);
}

void Sessions::carry_out_recall(const std::shared_ptr<Attached>& attached,
                                const Attachment& under) {
  await_reliance(*attached);
  if (SessionListener* listener = enter_listener()) {
    const Status status = listener->recall(attached->branch);
    leave_listener();
    if (!status.ok())  // its writers are told at their next flush; nobody else may wait for it
      SL_LOG(error, "event=recall_flush_failed target={} cause=\"{}\"", name_of(attached->target),
             status.to_string());
  }
  pb::BranchRequest request;
  Call call;
  {
    MutexLock lock(m_);
    // Meanwhile attached anew: that lease was not recalled, and what relies on it goes on.
    if (attached->session_ != under.session || attached->epoch_ != under.epoch) return;
    request.set_session(under.session.value);
    call.session = under.session;
  }
  request.set_branch(attached->branch.value);
  pb::Empty reply;
  const Status status = retry_.call(&MetaService::release_lease, call, request, &reply, 0);
  if (status.ok()) SL_LOG(debug, "event=lease_released target={}", name_of(attached->target));
  MutexLock lock(m_);
  if (attached->session_ == under.session && attached->epoch_ == under.epoch)
    attached->recalling_ = false;
}

// ---- A new session ----

void Sessions::renew(SessionId lost) {
  {
    MutexLock lock(m_);
    if (session_ != lost) return;
    for (auto& [branch, attached] : attached_) {
      make_shared(*attached);
      attached->usable_ = false;
    }
  }
  SL_LOG(warn, "event=session_lost session={}", lost.value);
  Result<Opened> opened = open_session(new_nonce(), Nanoseconds::max());
  if (!opened.ok()) {
    SL_LOG(error, "event=session_open_failed cause=\"{}\"", opened.status().to_string());
    return;
  }
  unlinked_cursor_ = 0;
  MutexLock lock(m_);
  session_ = SessionId(opened->reply.session());
  lease_ = Milliseconds(opened->reply.lease_ms());
  heartbeat_ = Milliseconds(opened->reply.heartbeat_ms());
  alive_until_ = opened->sent_at + lease_;
  SL_LOG(info, "event=session_opened session={} after={}", session_.value, lost.value);
  changed_.notify_all();
}

bool Sessions::attach_again() {
  std::vector<std::shared_ptr<Attached>> pending;
  SessionId session;
  {
    MutexLock lock(m_);
    session = session_;
    for (auto& [branch, attached] : attached_)
      if (!attached->usable_ || attached->session_ != session_) pending.push_back(attached);
  }
  bool all = true;
  for (const auto& attached : pending) all = attach_again(attached, session) && all;
  return all;
}

bool Sessions::attach_again(const std::shared_ptr<Attached>& attached, SessionId session) {
  Result<pb::AttachReply> reply = ask_attach(attached->target, session);
  if (reply.ok() && BranchId(reply->branch()) == attached->branch) {
    MutexLock lock(m_);
    if (!attached->gone()) adopt(*attached, *reply, session);
    return attached->usable_;
  }
  if (reply.ok() || is_final(reply.code())) {  // another volume has the name by now, or none
    mark_gone(attached);
    return true;
  }
  SL_LOG(debug, "event=attach_again_waits target={} cause=\"{}\"", name_of(attached->target),
         reply.status().to_string());
  return false;
}

}  // namespace starlane::client
