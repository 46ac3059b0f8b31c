#include "meta/nodes.h"

#include <algorithm>

#include "common/bytes.h"

namespace starlane::meta {
namespace {

constexpr int kSubdirectoryShift = 40;
constexpr std::uint64_t kEntryMask = (std::uint64_t{1} << kSubdirectoryShift) - 1;

std::int64_t packed(const EntryDelta& delta) {
  return delta.entries + delta.subdirectories * (std::int64_t{1} << kSubdirectoryShift);
}

}  // namespace

Status check_name(std::string_view name) {
  if (name.size() > kMaxName) return {Errc::name_too_long, "names have at most 255 bytes"};
  if (name.empty() || name == "." || name == "..") return {Errc::invalid, "not a name for a file"};
  if (name.find('/') != name.npos || name.find('\0') != name.npos) {
    return {Errc::invalid, "names hold neither '/' nor NUL"};
  }
  return {};
}

void add_total_keys(BranchId branch, InodeId inode, const InodeRow& row,
                    std::vector<std::string>* keys) {
  keys->push_back(accumulator_key(branch, inode, What::counts));
  keys->push_back(accumulator_key(branch, inode, What::changed, row.time_generation));
  keys->push_back(accumulator_key(branch, inode, What::version));
}

DirectoryTotals totals_of(std::span<const std::int64_t> values) {
  SL_CHECK(values.size() == kTotalKeys);
  const auto counts = static_cast<std::uint64_t>(std::max<std::int64_t>(values[0], 0));
  return {counts & kEntryMask, counts >> kSubdirectoryShift,
          static_cast<std::uint64_t>(std::max<std::int64_t>(values[1], 0)),
          static_cast<std::uint64_t>(std::max<std::int64_t>(values[2], 0))};
}

Result<DirectoryTotals> read_totals(kv::Transaction& t, BranchId branch, InodeId inode,
                                    const InodeRow& row) {
  std::vector<std::string> keys;
  add_total_keys(branch, inode, row, &keys);
  const std::vector<std::int64_t> values = SL_TRY(t.totals(keys));
  return totals_of(values);
}

void change_directory(Change& change, InodeId inode, const InodeRow& row, const EntryDelta& delta) {
  const BranchId branch = change.branch();
  change.t.guard(inode_key(branch, inode));
  if (const std::int64_t amount = packed(delta); amount != 0) {
    change.t.add(accumulator_key(branch, inode, What::counts), amount);
  }
  change.t.max(accumulator_key(branch, inode, What::changed, row.time_generation),
               static_cast<std::int64_t>(change.now_ns));
  change.t.add(accumulator_key(branch, inode, What::version), 1);
}

void clear_directory(Change& change, InodeId inode, const InodeRow& row) {
  std::vector<std::string> keys;
  add_total_keys(change.branch(), inode, row, &keys);
  for (const std::string& key : keys) change.t.clear(key);
}

Result<InodeRow> need_directory(const std::optional<kv::Row>& row) {
  InodeRow directory = SL_TRY(need<InodeRow>(row, "directory"));
  if (!directory.is_directory()) return {Errc::not_directory, "not a directory"};
  if (directory.nlink == 0) return {Errc::not_found, "the directory was deleted"};
  return directory;
}

InodeRow new_inode_row(const Change& change, InodeId parent, const InodeRow& parent_row,
                       std::uint32_t mode, std::uint32_t uid, std::uint32_t gid) {
  InodeRow row;
  row.header = change.header();
  row.mode = mode & (kTypeMask | 07777);
  row.nlink = 1;
  row.uid = uid;
  row.gid = gid;
  row.parent = parent;
  row.atime = row.mtime = row.ctime = row.btime = change.now;
  if (parent_row.mode & kSetGid) {
    row.gid = parent_row.gid;
    if (row.is_directory()) row.mode |= kSetGid;
  }
  return row;
}

void put_root(kv::Transaction& t, BranchId branch, const HeadRow& head, const Root& root,
              const WallTime& now) {
  InodeRow row;
  row.header.epoch = head.epoch;
  row.mode = kDirectory | (root.mode & ~kTypeMask);
  row.nlink = 1;
  row.uid = root.uid;
  row.gid = root.gid;
  row.parent = kRootInode;
  row.atime = row.mtime = row.ctime = row.btime = now;
  t.put(inode_key(branch, kRootInode), row.encode());
  t.add(accumulator_key(branch, InodeId{}, What::inodes), 1);
}

void kill_privileges(InodeRow& row) {
  constexpr std::uint32_t kGroupExecute = 0010;
  if (row.is_directory()) return;
  row.mode &= ~kSetUid;
  if (row.mode & kGroupExecute) row.mode &= ~kSetGid;
}

void touch_ctime(InodeRow& row, const WallTime& now) { row.ctime = std::max(row.ctime, now); }

}  // namespace starlane::meta
