// Advisory locks of one file as a value: who conflicts with whom, how ranges of one owner are
// split, joined and converted as POSIX says, and the row L that keeps them. Pure.
#pragma once
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "meta/row_codec.h"

namespace starlane::meta {

inline constexpr std::size_t kMaxLocksOfFile = 4'096;
inline constexpr std::uint64_t kLockToEnd = (std::uint64_t{1} << 63) - 1;

enum class LockKind : std::uint8_t { record = 0, flock = 1 };  // they never meet
enum class LockType : std::uint8_t { read = 0, write = 1, unlock = 2 };

struct LockOwner {
  SessionId session;
  std::uint64_t owner = 0;  // a process or an open file description, as its mount numbers them
  friend auto operator<=>(const LockOwner&, const LockOwner&) = default;
};

/// One lock, 46 bytes as stored.
struct FileLock {
  LockOwner of;
  std::uint64_t attachment_epoch = 0;  // the first of the attachment with which it ends
  std::uint64_t start = 0;
  std::uint64_t end = kLockToEnd;  // included
  std::uint32_t pid = 0;
  LockKind kind = LockKind::record;
  LockType type = LockType::read;

  bool overlaps(const FileLock& other) const { return start <= other.end && other.start <= end; }
  bool same_owner(const FileLock& other) const { return kind == other.kind && of == other.of; }
  bool conflicts(const FileLock& other) const {
    return kind == other.kind && of != other.of && overlaps(other) &&
           (type == LockType::write || other.type == LockType::write);
  }
  friend bool operator==(const FileLock&, const FileLock&) = default;

  template <typename Self, typename Codec>
  static void fields(Self& s, Codec& c) {
    c(s.of.session, s.attachment_epoch, s.of.owner, s.start, s.end, s.pid, s.kind, s.type);
  }
};
inline constexpr std::size_t kFileLockSize = 46;

/// L: all locks of a file, by owner and start, no two of one owner and kind overlapping.
struct LockRow {
  RowHeader header;
  std::vector<FileLock> locks;

  std::string encode() const;
  static Result<LockRow> decode(std::string_view value);
};

/// Whether they are in the row's order, and no two of one owner and kind overlap.
bool well_ordered(const std::vector<FileLock>& locks);

/// Every lock that stands in the way of `wanted`, the one that starts first in front.
std::vector<FileLock> conflicts_of(const std::vector<FileLock>& locks, const FileLock& wanted);

/// `wanted` takes the place of what its owner had in its range; of type unlock: nothing does.
void set_range(std::vector<FileLock>& locks, const FileLock& wanted);

}  // namespace starlane::meta
