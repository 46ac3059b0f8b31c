// The values of the ledger's records, as plain structs with their sizes asserted, and those that
// carry text. They change like a disk format: docs/formats.md. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/handles/directory_handle.h"
#include "client/session/sessions.h"
#include "client/takeover/ledger.h"
#include "client/vfs.h"

namespace starlane::client {

/// An open file. unique: of the request that made the handle; when the kernel sends that request
/// again, nobody was told of the handle.
struct FileRecord {
  std::uint64_t node = 0;
  std::uint64_t unique = 0;
  std::uint32_t flags = 0;  // of open
  std::uint8_t direct = 0;
  std::uint8_t passthrough = 0;
  std::uint16_t reserved = 0;
};
static_assert(sizeof(FileRecord) == 24);

struct DirectoryRecord {
  std::uint64_t node = 0;
  std::uint64_t unique = 0;
};
static_assert(sizeof(DirectoryRecord) == 16);

struct AppendRecord {
  std::uint64_t offset = 0;
};
static_assert(sizeof(AppendRecord) == 8);

/// Of an owner of locks. 0: it has asked for one, and is not known to have it.
struct LockRecord {
  std::uint64_t attachment_epoch = 0;  // the first of the attachment with which it ends
};
static_assert(sizeof(LockRecord) == 8);

/// Of a request that was sent again: daemons that crashed while they served it, after the first.
struct SuspectRecord {
  std::uint32_t crashes = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(SuspectRecord) == 8);

struct MovedRecord {
  std::int64_t boot_ns = 0;
};
static_assert(sizeof(MovedRecord) == 8);

/// Of a file whose bytes did not leave: what its next flush answers.
struct LostRecord {
  std::int32_t error_number = 0;  // an errno
  std::uint32_t reserved = 0;
};
static_assert(sizeof(LostRecord) == 8);

/// Attributes that go with a file's next commit.
struct SetRecord {
  static constexpr std::uint32_t kMode = 1, kUid = 2, kGid = 4, kAtime = 8, kMtime = 16;
  std::uint32_t which = 0;
  std::uint32_t mode = 0, uid = 0, gid = 0;
  std::int64_t atime_seconds = 0, mtime_seconds = 0;
  std::uint32_t atime_nanoseconds = 0, mtime_nanoseconds = 0;
};
static_assert(sizeof(SetRecord) == 40);
SetRecord record_of(const SetStat& change);
SetStat change_of(const SetRecord& record);

/// The value as T; nothing when it is shorter. A longer one is a later build's.
template <typename T>
std::optional<T> plain_of(const std::vector<std::byte>& value) {
  if (value.size() < sizeof(T)) return std::nullopt;
  return load_little<T>(value.data());
}

/// A tree that a slot of the mount shows.
struct ViewRecord {
  AttachTarget target;
  BranchId branch;
  ViewId view;
  bool frozen = false;
};
std::vector<std::byte> encode(const ViewRecord& view);
std::optional<ViewRecord> decode_view(ByteSpan value);

std::vector<std::byte> encode(const ListedPage& page);
std::optional<ListedPage> decode_page(ByteSpan value);

}  // namespace starlane::client
