// What inodes and directory entries have in common over all operations: making them, counting them,
// and the accumulators of a directory (entries, subdirectories, times, version), which no create
// has to rewrite a row for.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "meta/context.h"

namespace starlane::meta {

inline constexpr std::size_t kMaxName = 255;
inline constexpr std::size_t kMaxTarget = 4095;                      // of a symbolic link
inline constexpr std::uint64_t kMaxLength = std::uint64_t{1} << 58;  // 2^32 chunks

/// invalid for "", ".", "..", '/' and NUL in it; name_too_long.
Status check_name(std::string_view name);

struct DirectoryTotals {
  std::uint64_t entries = 0;
  std::uint64_t subdirectories = 0;
  std::uint64_t changed_ns = 0;  // 0: not since the times were last set
  std::uint64_t changes = 0;
};
inline constexpr std::size_t kTotalKeys = 3;
/// Appends the kTotalKeys keys of a directory, for `Transaction::totals`; totals_of reads what that
/// answered.
void add_total_keys(BranchId branch, InodeId inode, const InodeRow& row,
                    std::vector<std::string>* keys);
DirectoryTotals totals_of(std::span<const std::int64_t> values);
Result<DirectoryTotals> read_totals(kv::Transaction& t, BranchId branch, InodeId inode,
                                    const InodeRow& row);

struct EntryDelta {
  std::int64_t entries = 0;
  std::int64_t subdirectories = 0;
};
/// Counts a change of the directory's entries, sets its times, and guards it against removal and
/// change of its row. Once a directory and transaction.
void change_directory(Change& change, InodeId inode, const InodeRow& row, const EntryDelta& delta);
/// Removes the accumulators of a directory that goes.
void clear_directory(Change& change, InodeId inode, const InodeRow& row);

/// Decodes the row of a directory; not_found (also of one in the trash), not_directory.
Result<InodeRow> need_directory(const std::optional<kv::Row>& row);

/// A fresh row, owned as POSIX says: setgid directories hand down their group, and to directories
/// the bit.
InodeRow new_inode_row(const Change& change, InodeId parent, const InodeRow& parent_row,
                       std::uint32_t mode, std::uint32_t uid, std::uint32_t gid);

struct Root {
  std::uint32_t mode = 0755;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
};
/// The root directory of a new branch, counted in its usage.
void put_root(kv::Transaction& t, BranchId branch, const HeadRow& head, const Root& root,
              const WallTime& now);

/// As the kernel does for a write or a change of owner: setuid goes, and setgid where the group may
/// execute.
void kill_privileges(InodeRow& row);

/// A change of attributes or names: the inode's ctime, never going back.
void touch_ctime(InodeRow& row, const WallTime& now);

}  // namespace starlane::meta
