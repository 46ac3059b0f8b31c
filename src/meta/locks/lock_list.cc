#include "meta/locks/lock_list.h"

#include <algorithm>
#include <tuple>

namespace starlane::meta {
namespace {

bool sound(const FileLock& lock) {
  return lock.start <= lock.end && lock.end <= kLockToEnd && lock.kind <= LockKind::flock &&
         lock.type <= LockType::write;
}

bool touches(const FileLock& one, const FileLock& other) {
  return one.start <= other.end + 1 && other.start <= one.end + 1;  // ends are below 2^63
}

bool in_order(const FileLock& one, const FileLock& other) {
  return std::tie(one.of, one.kind, one.start) < std::tie(other.of, other.kind, other.start);
}

}  // namespace

std::string LockRow::encode() const {
  RowEncoder encoder(header, kRowHeaderSize + 4 + locks.size() * kFileLockSize);
  encoder(static_cast<std::uint32_t>(locks.size()));
  for (const FileLock& lock : locks) FileLock::fields(lock, encoder);
  return encoder.take();
}

Result<LockRow> LockRow::decode(std::string_view value) {
  RowDecoder decoder(value);
  LockRow row;
  row.header = decoder.header;
  std::uint32_t count = 0;
  decoder(count);
  if (!decoder.ok() || count > value.size() / kFileLockSize) return damaged("locks");
  row.locks.resize(count);
  for (FileLock& lock : row.locks) {
    FileLock::fields(lock, decoder);
    if (!decoder.ok() || !sound(lock)) return damaged("locks");
  }
  if (!decoder.done()) return damaged("locks");
  return row;
}

bool well_ordered(const std::vector<FileLock>& locks) {
  return std::ranges::adjacent_find(locks, [](const FileLock& one, const FileLock& next) {
           return !in_order(one, next) || (one.same_owner(next) && one.overlaps(next));
         }) == locks.end();
}

std::vector<FileLock> conflicts_of(const std::vector<FileLock>& locks, const FileLock& wanted) {
  std::vector<FileLock> found;
  if (wanted.type == LockType::unlock) return found;
  std::copy_if(locks.begin(), locks.end(), std::back_inserter(found),
               [&](const FileLock& lock) { return lock.conflicts(wanted); });
  std::stable_sort(found.begin(), found.end(), [](const FileLock& one, const FileLock& other) {
    return one.start < other.start;
  });
  return found;
}

void set_range(std::vector<FileLock>& locks, const FileLock& wanted) {
  std::vector<FileLock> kept;
  kept.reserve(locks.size() + 2);
  FileLock joined = wanted;
  for (const FileLock& lock : locks) {
    if (!lock.same_owner(wanted)) {
      kept.push_back(lock);
    } else if (lock.type == wanted.type && touches(lock, wanted)) {
      joined.start = std::min(joined.start, lock.start);
      joined.end = std::max(joined.end, lock.end);
    } else {
      // What lies on either side of the range, or the whole of it.
      FileLock before = lock, behind = lock;
      if (lock.overlaps(wanted)) {
        before.end = wanted.start - 1;
        behind.start = wanted.end + 1;
        if (lock.start < wanted.start) kept.push_back(before);
        if (lock.end > wanted.end) kept.push_back(behind);
      } else {
        kept.push_back(lock);
      }
    }
  }
  if (wanted.type != LockType::unlock) kept.push_back(joined);
  std::sort(kept.begin(), kept.end(), in_order);
  locks = std::move(kept);
}

}  // namespace starlane::meta
