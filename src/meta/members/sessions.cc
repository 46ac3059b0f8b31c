#include "meta/members/sessions.h"

#include <algorithm>

#include "meta/members/attachments.h"
#include "meta/ops/ops.h"

namespace starlane::meta {
namespace {

constexpr std::uint8_t kSessionCount = 1;  // what counter_key counts
constexpr std::size_t kMaxText = 255;

Status check_texts(const pb::OpenSessionRequest& request) {
  for (const std::string* text :
       {&request.host(), &request.purpose(), &request.nonce(), &request.process().space()}) {
    if (text->size() > kMaxText) {
      return {Errc::invalid, "host, purpose, nonce and space of a session have at most 255 bytes"};
    }
  }
  return {};
}

/// The session that this nonce opened before; none if there is no such.
Result<SessionId> known_by_nonce(kv::Transaction& t, const std::string& nonce) {
  if (nonce.empty()) return SessionId{};
  const std::optional<kv::Row> row = SL_TRY(t.get(session_by_nonce_key(nonce)));
  t.expect(session_by_nonce_key(nonce), row ? row->version : kv::kAbsent);
  if (!row) return SessionId{};
  return SessionId{SL_TRY(NumberRow::decode(row->value)).number};
}

void put_session(Context& context, kv::Transaction& t, SessionId session,
                 const pb::OpenSessionRequest& request) {
  const WallTime now = context.clock.wall();
  const SessionRow row{{}, now, request.host(), request.purpose(), request.nonce()};
  t.put(session_key(session), row.encode());
  if (!request.nonce().empty()) {
    t.put(session_by_nonce_key(request.nonce()), NumberRow{{}, session.value}.encode());
  }
  t.max(heard_key(session), static_cast<std::int64_t>(to_ns(now)));
  t.add_limited(counter_key(kSessionCount), 1, kMaxSessions);
}

/// A sign of life, as a heartbeat is: of a process that goes on for one that died.
Status renew(Context& context, kv::Transaction& t, SessionId session) {
  const std::uint64_t heard = SL_TRY(last_heard(t, session));
  t.max(heard_key(session),
        static_cast<std::int64_t>(std::max(to_ns(context.clock.wall()), heard + 1)));
  return {};
}

}  // namespace

Status op_open_session(Context& context, const Call&, const pb::OpenSessionRequest& request,
                       pb::OpenSessionReply* reply) {
  SL_TRY(check_texts(request));
  const SessionId fresh{SL_TRY(context.sessions.take(BranchId{}))};
  SessionId session;
  const Status opened =
      kv::run(context.engine, kv::Durability::ordered, [&](kv::Transaction& t) -> Status {
        session = SL_TRY(known_by_nonce(t, request.nonce()));
        if (session) return renew(context, t, session);
        session = fresh;
        put_session(context, t, session, request);
        return {};
      });
  if (opened.code() == Errc::quota) {
    return {Errc::busy,
            "there are " + std::to_string(kMaxSessions) + " sessions: close some first"};
  }
  SL_TRY(opened);
  if (request.has_process()) {
    const pb::Process& process = request.process();
    context.watch.ends_with(session, {process.space(), process.pid(), process.started()});
  }
  reply->set_session(session.value);
  reply->set_lease_ms(static_cast<std::uint64_t>(context.options.lease.count()));
  reply->set_heartbeat_ms(static_cast<std::uint64_t>(context.options.heartbeat.count()));
  reply->set_cluster(context.options.cluster);
  return {};
}

Status end_session(kv::Transaction& t, SessionId session) {
  const std::optional<kv::Row> row = SL_TRY(t.get(session_key(session)));
  if (!row) return {};
  const SessionRow decoded = SL_TRY(SessionRow::decode(row->value));
  t.expect(session_key(session), row->version);
  t.del(session_key(session));
  if (!decoded.nonce.empty()) t.del(session_by_nonce_key(decoded.nonce));
  t.clear(heard_key(session));
  t.add(counter_key(kSessionCount), -1);
  t.put(dead_session_key(session), NumberRow{{}, session.value}.encode());
  for (const BranchId branch : SL_TRY(branches_of(t, session))) {
    SL_TRY(remove_attachment(t, branch, session));
  }
  return {};
}

Result<std::uint64_t> last_heard(kv::Transaction& t, SessionId session) {
  const std::int64_t heard = SL_TRY(t.total(heard_key(session)));
  return static_cast<std::uint64_t>(std::max<std::int64_t>(heard, 0));
}

Result<bool> end_if_silent(Context& context, SessionId session) {
  bool over = false;
  const Status ended =
      kv::run(context.engine, kv::Durability::ordered, [&](kv::Transaction& t) -> Status {
        const std::uint64_t heard = SL_TRY(last_heard(t, session));
        over = context.watch.silent(session, heard, context.clock.boot(), context.options.lease);
        if (!over) return {};
        return end_session(t, session);
      });
  if (!ended.ok()) return ended;
  if (over) context.lock_waits.all_changed();
  return over;
}

Status op_close_session(Context& context, const Call&, const pb::SessionRequest& request,
                        pb::Empty*) {
  const Status ended = kv::run(
      context.engine, kv::Durability::ordered,
      [&](kv::Transaction& t) -> Status { return end_session(t, SessionId{request.session()}); });
  context.lock_waits.all_changed();
  return ended;
}

Status op_list_sessions(Context& context, const Call&, const pb::Empty&,
                        pb::ListSessionsReply* reply) {
  const std::uint64_t now = to_ns(context.clock.wall());
  const auto since = [now](std::uint64_t then) {
    return then < now ? (now - then) / 1'000'000 : 0;
  };
  return context.read([&](kv::Transaction& t) -> Status {
    reply->Clear();
    const KeyRange range = table_range(Space::system, BranchId{}, Table::session);
    for (const kv::Row& row : SL_TRY(scan_all(t, range, kMaxSessions * 2))) {
      const SessionRow session = SL_TRY(SessionRow::decode(row.value));
      const SessionId id{KeyReader(row.key).u64()};
      pb::SessionInfo* info = reply->add_sessions();
      info->set_session(id.value);
      info->set_host(session.host);
      info->set_purpose(session.purpose);
      info->set_age_ms(since(to_ns(session.opened)));
      info->set_silent_ms(since(SL_TRY(last_heard(t, id))));
      for (const BranchId branch : SL_TRY(branches_of(t, id))) info->add_branches(branch.value);
    }
    return {};
  });
}

}  // namespace starlane::meta
