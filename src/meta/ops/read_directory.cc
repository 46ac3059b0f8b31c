#include <algorithm>

#include "meta/messages.h"
#include "meta/ops/ops.h"

namespace starlane::meta {
namespace {

constexpr std::uint32_t kMaxEntries = 4096;  // in one answer
constexpr std::uint32_t kUsualEntries = 1000;

/// The attributes of all entries in two reads: rows, then the totals of those that are directories.
Status add_attributes(kv::Transaction& t, BranchId branch, pb::ReadDirectoryReply* reply) {
  std::vector<std::string> keys;
  for (const pb::DirectoryEntry& entry : reply->entries())
    keys.push_back(inode_key(branch, InodeId{entry.inode()}));
  const Rows found = SL_TRY(t.get_many(keys));
  std::vector<std::optional<InodeRow>> rows(found.size());
  std::vector<std::string> total_keys;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!found[i]) continue;  // a dangling entry: listed without attributes, reported by fsck
    rows[i] = SL_TRY(InodeRow::decode(found[i]->value));
    const InodeId inode{reply->entries(static_cast<int>(i)).inode()};
    if (rows[i]->is_directory()) add_total_keys(branch, inode, *rows[i], &total_keys);
  }
  std::vector<std::int64_t> totals;
  if (!total_keys.empty()) totals = SL_TRY(t.totals(total_keys));
  std::size_t next = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i]) continue;
    DirectoryTotals of;
    if (rows[i]->is_directory()) {
      of = totals_of(std::span(totals).subspan(next, kTotalKeys));
      next += kTotalKeys;
    }
    pb::DirectoryEntry* entry = reply->mutable_entries(static_cast<int>(i));
    put_attributes(InodeId{entry->inode()}, *rows[i], of, entry->mutable_attributes());
  }
  return {};
}

}  // namespace

Status op_read_directory(Context& context, const Call&, const pb::ReadDirectoryRequest& request,
                         pb::ReadDirectoryReply* reply) {
  const BranchId branch{request.on().branch()};
  const InodeId inode{request.inode()};
  const std::size_t limit =
      std::min(request.limit() == 0 ? kUsualEntries : request.limit(), kMaxEntries);
  KeyRange range = entries_of(branch, inode);
  // The least key that is greater than `after`.
  if (!request.after().empty()) range.first = entry_key(branch, inode, request.after()) + '\0';
  return context.read([&](kv::Transaction& t) -> Status {
    reply->Clear();
    const std::optional<kv::Row> directory = SL_TRY(t.get(inode_key(branch, inode)));
    SL_TRY(need_directory(directory));
    const std::vector<kv::Row> rows = SL_TRY(t.scan({range.first, range.last, limit}));
    for (const kv::Row& one : rows) {
      const EntryKey key = SL_TRY(parse_entry_key(one.key));
      const EntryRow row = SL_TRY(EntryRow::decode(one.value));
      pb::DirectoryEntry* entry = reply->add_entries();
      entry->set_name(key.name.data(), key.name.size());
      entry->set_inode(row.inode.value);
      entry->set_type(row.type);
    }
    reply->set_end(rows.size() < limit);
    if (!request.attributes() || rows.empty()) return {};
    return add_attributes(t, branch, reply);
  });
}

}  // namespace starlane::meta
