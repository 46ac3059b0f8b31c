// open: the gate between two mounts. Says whether the name still names this file, and its version,
// so that the caller drops what it has cached of another one; O_TRUNC is part of it.
#include "meta/messages.h"
#include "meta/ops/ops.h"
#include "meta/protection.h"
#include "meta/truncate.h"

namespace starlane::meta {
namespace {

/// The name that the caller looked up names another file by now, or none.
Result<bool> has_moved(const pb::OpenRequest& request, const Rows& rows) {
  if (request.parent() == 0) return false;
  if (!rows[1]) return true;
  const EntryRow entry = SL_TRY(EntryRow::decode(rows[1]->value));
  return entry.inode.value != request.inode();
}

std::vector<std::string> keys_of(const pb::OpenRequest& request) {
  const BranchId branch{request.on().branch()};
  std::vector<std::string> keys = {inode_key(branch, InodeId{request.inode()})};
  if (request.parent() != 0)
    keys.push_back(entry_key(branch, InodeId{request.parent()}, request.name()));
  return keys;
}

/// As change_branch would say at the first write.
Status check_attached_for_writing(const Access& access, const std::optional<kv::Row>& row) {
  if (!access.session || access.attachment_epoch == 0) return {};
  if (!row) return {Errc::fenced, "the volume was detached from this session"};
  const RowHeader header = SL_TRY(decode_header(row->value, "attachment"));
  if (header.flags & kAttachedReadOnly) return {Errc::read_only, "attached for reading only"};
  return {};
}

Status open_as_it_is(Context& context, const pb::OpenRequest& request, pb::OpenReply* reply) {
  const BranchId branch{request.on().branch()};
  std::vector<std::string> keys = keys_of(request);
  const Access access = access_of(request.on());
  if (request.write()) {
    keys.push_back(attachment_key(branch, access.session));
    keys.push_back(head_key(branch));
  }
  return context.read([&](kv::Transaction& t) -> Status {
    reply->Clear();
    const Rows rows = SL_TRY(t.get_many(keys));
    if (SL_TRY(has_moved(request, rows))) {
      reply->set_moved(true);
      return {};
    }
    const InodeRow row = SL_TRY(need<InodeRow>(rows[0], "file or directory"));
    if (request.write()) {
      const HeadRow head = SL_TRY(need<HeadRow>(rows.back(), "volume"));
      if (head.state != BranchState::active)
        return {Errc::read_only, "a published data set never changes"};
      SL_TRY(check_attached_for_writing(access, rows[rows.size() - 2]));
      if (row.is_directory()) return {Errc::is_directory, "a directory"};
      SL_TRY(may_open_for_writing(row, {request.append(), false}));
    }
    return read_attributes(t, branch, InodeId{request.inode()}, row, reply->mutable_attributes());
  });
}

Status truncate_opened(Change& change, const pb::OpenRequest& request, const Rows& rows,
                       bool* too_long, pb::OpenReply* reply) {
  if (SL_TRY(has_moved(request, rows))) {
    reply->set_moved(true);
    return {};
  }
  if (!rows[0]) return {Errc::not_found, "no such file"};
  Node node = SL_TRY(node_of(InodeId{request.inode()}, rows[0]));
  SL_TRY(may_open_for_writing(node.row, {request.append(), true}));
  if (request.parent() != 0) change.t.expect(rows[1]->key, rows[1]->version);
  SL_TRY(set_length(change, node, 0, too_long));
  put_node(change, node);
  put_attributes(node.inode, node.row, {}, reply->mutable_attributes());
  return {};
}

}  // namespace

Status op_open(Context& context, const Call&, const pb::OpenRequest& request,
               pb::OpenReply* reply) {
  if (!request.truncate()) return open_as_it_is(context, request, reply);
  const Access access = access_of(request.on());
  for (;;) {
    bool too_long = false;
    const Status done =
        change_branch(context, access, number_of(Method::open), keys_of(request), reply,
                      [&](Change& change, Rows& rows) {
                        return truncate_opened(change, request, rows, &too_long, reply);
                      });
    if (done.code() != Errc::busy || !too_long) return done;
    SL_TRY(shorten_in_steps(context, access, InodeId{request.inode()}, 0));
  }
}

}  // namespace starlane::meta
