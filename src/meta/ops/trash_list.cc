// trash_list: what was deleted and is kept, in the order of its deletion, page by page.
#include <algorithm>

#include "meta/messages.h"
#include "meta/ops/ops.h"
#include "meta/trash.h"
#include "meta/upkeep/walk.h"

namespace starlane::meta {
namespace {

constexpr std::uint32_t kMaxPage = 4'096;

Status tell(kv::Transaction& t, const HeadRow& head, const Trashed& trashed,
            const std::optional<kv::Row>& inode, pb::TrashListReply* reply) {
  const Node node = SL_TRY(node_of(trashed.key.inode, inode));
  pb::TrashEntry* entry = reply->add_entries();
  entry->mutable_item()->set_deleted_ns(trashed.key.deleted_ns);
  entry->mutable_item()->set_inode(trashed.key.inode.value);
  entry->set_parent(node.row.parent.value);
  entry->set_name(trashed.row.name);
  entry->set_expires_ns(trashed.key.deleted_ns + kept_for_ns(head));
  return read_attributes(t, trashed.key.branch, node.inode, node.row, entry->mutable_attributes());
}

}  // namespace

Status op_trash_list(Context& context, const Call&, const pb::TrashListRequest& request,
                     pb::TrashListReply* reply) {
  const BranchId branch{request.branch()};
  const std::size_t limit = request.limit() == 0 ? kMaxPage : std::min(request.limit(), kMaxPage);
  KeyRange range = table_range(Space::branch, branch, Table::trashed);
  if (!request.cursor().empty()) {
    const TrashedKey last = SL_TRY(parse_trashed_key(request.cursor()));
    if (last.branch != branch)
      return {Errc::invalid, "this cursor is not one that was given out for this volume"};
    range.first = request.cursor() + '\0';
  }
  return context.read([&](kv::Transaction& t) -> Status {
    reply->Clear();
    const HeadRow head = SL_TRY(read_head(t, branch));
    const std::vector<kv::Row> rows = SL_TRY(t.scan({range.first, range.last, limit}));
    std::vector<Trashed> all;
    std::vector<std::string> keys;
    for (const kv::Row& row : rows) {
      all.push_back(SL_TRY(trashed_of(row)));
      keys.push_back(inode_key(branch, all.back().key.inode));
    }
    const Rows inodes = SL_TRY(t.get_many(keys));
    for (std::size_t i = 0; i < all.size(); ++i) SL_TRY(tell(t, head, all[i], inodes[i], reply));
    if (rows.size() == limit) reply->set_cursor(rows.back().key);
    return {};
  });
}

}  // namespace starlane::meta
