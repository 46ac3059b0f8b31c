#include "meta/members/attachments.h"

#include <algorithm>

namespace starlane::meta {
namespace {

constexpr std::size_t kPinPage = 1'000;

}  // namespace

Result<std::vector<kv::Row>> scan_all(kv::Transaction& t, const KeyRange& range,
                                      std::size_t limit) {
  std::vector<kv::Row> rows = SL_TRY(t.scan({range.first, range.last, limit + 1}));
  if (rows.size() > limit) {
    return {Errc::busy, "more than " + std::to_string(limit) + " sessions or attachments exist"};
  }
  return rows;
}

Result<std::vector<Attached>> attached_to(kv::Transaction& t, BranchId branch) {
  const std::vector<kv::Row> rows = SL_TRY(scan_all(t, attachments_of(branch), kMaxAttached));
  std::vector<Attached> all;
  all.reserve(rows.size());
  for (const kv::Row& row : rows) {
    KeyReader key(row.key);
    key.u64();
    const SessionId session{key.u64()};
    if (!key.done()) return damaged("attachment");
    all.push_back({session, SL_TRY(AttachmentRow::decode(row.value)), row.version});
  }
  return all;
}

Result<std::vector<BranchId>> branches_of(kv::Transaction& t, SessionId session) {
  const std::vector<kv::Row> rows = SL_TRY(scan_all(t, attached_by(session), kMaxAttachments * 2));
  std::vector<BranchId> all;
  for (const kv::Row& row : rows) {
    KeyReader key(row.key);
    key.u64();
    all.push_back(BranchId{key.u64()});
    if (!key.done()) return damaged("attachment");
  }
  return all;
}

void count_attachments(HeadRow& head, const std::vector<SessionId>& attached) {
  head.attachments = static_cast<std::uint32_t>(attached.size());
  head.only_session = attached.size() == 1 ? attached.front() : SessionId{};
}

Status remove_attachment(kv::Transaction& t, BranchId branch, SessionId session) {
  t.del(attached_by_key(session, branch));
  const std::string key = attachment_key(branch, session);
  const std::optional<kv::Row> row = SL_TRY(t.get(key));
  if (!row) return {};
  t.expect(key, row->version);
  t.del(key);
  const std::optional<kv::Row> head_row = SL_TRY(t.get(head_key(branch)));
  if (!head_row) return {};
  HeadRow head = SL_TRY(HeadRow::decode(head_row->value));
  if (head.state == BranchState::frozen) return {};  // Not counted: nothing depends on who has it.
  std::vector<SessionId> left;
  for (const Attached& one : SL_TRY(attached_to(t, branch))) {
    if (one.session != session) left.push_back(one.session);
  }
  count_attachments(head, left);
  t.expect(head_key(branch), head_row->version);
  t.put(head_key(branch), head.encode());
  return {};
}

Result<std::vector<kv::Row>> pins_by(kv::Transaction& t, BranchId branch, SessionId session) {
  KeyRange range = table_range(Space::branch, branch, Table::pin);
  std::vector<kv::Row> own;
  for (;;) {
    std::vector<kv::Row> rows = SL_TRY(t.scan({range.first, range.last, kPinPage}));
    const bool last = rows.size() < kPinPage;
    if (!last) range.first = rows.back().key + '\0';
    for (kv::Row& row : rows) {
      KeyReader key(row.key);
      key.u64();
      if (SessionId{key.u64()} == session) own.push_back(std::move(row));
    }
    if (last) return own;
  }
}

}  // namespace starlane::meta
