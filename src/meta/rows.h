// Values of the rows of a branch, and of its head. docs/formats.md ("Rows") is the reference;
// row_codec.h the encoding. Decoding checks what later code relies on and answers `corrupt`. Plain
// values; any thread.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/ids.h"
#include "common/status.h"
#include "meta/row_codec.h"

namespace starlane::meta {

// File types, as mode & kTypeMask; FileType on the wire is mode >> 12.
inline constexpr std::uint32_t kTypeMask = 0170000;
inline constexpr std::uint32_t kDirectory = 0040000;
inline constexpr std::uint32_t kRegular = 0100000;
inline constexpr std::uint32_t kSymlink = 0120000;
inline constexpr std::uint32_t kSetUid = 04000;
inline constexpr std::uint32_t kSetGid = 02000;

/// I: what a file is. Of directories nlink, entries and times are in accumulators too (nodes.h).
struct InodeRow {
  RowHeader header;
  std::uint32_t mode = 0;
  std::uint32_t nlink =
      0;  // names; of a directory 1 (subdirectories are counted by an accumulator)
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t rdev = 0;
  std::uint32_t generation = 0;
  std::uint64_t length = 0;
  std::uint64_t bytes = 0;    // of the length, what data covers
  std::uint64_t version = 1;  // raised by every change of content or length
  WallTime atime, mtime, ctime, btime;
  std::uint32_t flags = 0;
  InodeId parent;  // of the first name; of the root: itself
  std::uint64_t time_generation =
      0;  // of a directory: accumulators of other generations are ignored
  std::uint32_t project = 0;
  std::uint32_t acl = 0;
  std::uint64_t base_limit = 0;
  std::uint32_t tier = 0;
  std::uint32_t layout = 0;
  std::uint32_t retention = 0;

  bool is_directory() const { return (mode & kTypeMask) == kDirectory; }
  bool is_regular() const { return (mode & kTypeMask) == kRegular; }
  bool is_symlink() const { return (mode & kTypeMask) == kSymlink; }

  template <typename Self, typename Codec>
  static void fields(Self& s, Codec& c) {
    c(s.mode, s.nlink, s.uid, s.gid, s.rdev, s.generation, s.length, s.bytes, s.version, s.atime,
      s.mtime, s.ctime, s.btime, s.flags, s.parent, s.time_generation, s.project, s.acl,
      s.base_limit, s.tier, s.layout, s.retention);
  }
  std::string encode() const { return encode_row(*this); }
  static Result<InodeRow> decode(std::string_view value);
};
/// InodeRow::flags.
inline constexpr std::uint32_t kImmutable = 1;
inline constexpr std::uint32_t kAppendOnly = 2;
inline constexpr std::uint32_t kHasXattrs = 1u << 16;  // rows of X may exist
inline constexpr std::uint32_t kLinkable = 1u << 17;   // ours: made without a name, may get one

/// D: what a name names.
struct EntryRow {
  RowHeader header;
  InodeId inode;
  std::uint8_t type = 0;  // mode >> 12

  template <typename Self, typename Codec>
  static void fields(Self& s, Codec& c) {
    c(s.inode, s.type);
  }
  std::string encode() const { return encode_row(*this); }
  static Result<EntryRow> decode(std::string_view value);
};

/// N, O, M: the key says it all.
struct MarkRow {
  RowHeader header;
  template <typename Self, typename Codec>
  static void fields(Self&, Codec&) {}
  std::string encode() const { return encode_row(*this); }
};

enum class SliceKind : std::uint8_t { data = 0, zero = 1, inline_bytes = 2, origin = 3 };

/// One entry of S, 48 bytes as stored.
struct Entry {
  std::uint32_t position = 0;  // in the chunk
  std::uint32_t length = 0;
  std::uint32_t offset = 0;  // in the slice
  SliceKind kind = SliceKind::data;
  std::uint8_t layout = 0;
  std::uint8_t codec = 0;
  std::uint8_t flags = 0;
  SliceId slice;
  BranchId owner;
  std::uint32_t birth = 0;  // epoch of this branch at which the reference was born
  std::uint32_t slice_length = 0;
  std::uint32_t placement_epoch = 0;
  std::uint32_t key_id = 0;

  std::uint32_t end() const { return position + length; }
  friend bool operator==(const Entry&, const Entry&) = default;

  template <typename Self, typename Codec>
  static void fields(Self& s, Codec& c) {
    c(s.position, s.length, s.offset, s.kind, s.layout, s.codec, s.flags, s.slice, s.owner, s.birth,
      s.slice_length, s.placement_epoch, s.key_id);
  }
};
inline constexpr std::size_t kEntrySize = 48;
/// Entry::flags: the slice belongs to a frozen image, which is pinned (table P) instead of counted
/// (table K).
inline constexpr std::uint8_t kPinned = 1;

/// S: the entries of a chunk, later ones shadowing earlier ones; then the content of each inline
/// slice, in the order in which the slices first appear.
struct SlicesRow {
  struct Inline {
    SliceId slice;
    std::string bytes;
  };
  RowHeader header;
  std::vector<Entry> entries;
  std::vector<Inline> inlines;

  /// Content of an inline slice of this row.
  std::string_view inline_of(SliceId slice) const;
  std::string encode() const;
  static Result<SlicesRow> decode(std::string_view value);
};

/// X: an extended attribute.
struct XattrRow {
  RowHeader header;
  std::string value;
  std::string encode() const;
  static Result<XattrRow> decode(std::string_view value);
};

/// T: a dead reference. To settle it: pinned: add -1 to image_pins_key(owner); else if
/// count_key(slice) > 0: add -1 to that; else it was the last, and the blocks go first. Settling
/// takes slice_length from What::held of the branch.
struct DeadRow {
  RowHeader header;  // flags: kDying once the blocks are being removed
  BranchId owner;
  std::uint32_t slice_length = 0;
  std::uint32_t placement_epoch = 0;
  std::uint8_t layout = 0;
  std::uint8_t flags = 0;  // as Entry::flags

  template <typename Self, typename Codec>
  static void fields(Self& s, Codec& c) {
    c(s.owner, s.slice_length, s.placement_epoch, s.layout, s.flags);
  }
  std::string encode() const { return encode_row(*this); }
  static Result<DeadRow> decode(std::string_view value);
};
inline constexpr std::uint8_t kDying = 1;

/// U: unlinked, perhaps still open. The key has the time from which it may be freed.
struct UnlinkedRow {
  RowHeader header;
  SessionId by;
  template <typename Self, typename Codec>
  static void fields(Self& s, Codec& c) {
    c(s.by);
  }
  std::string encode() const { return encode_row(*this); }
  static Result<UnlinkedRow> decode(std::string_view value);
};

/// B: deleted, and kept in the trash under the name that it had in the directory `parent` of its
/// inode's row, of which it is the only link. The key has the time of its deletion.
struct TrashedRow {
  RowHeader header;
  SessionId by;                // as UnlinkedRow::by
  std::uint64_t ready_ns = 0;  // as the key of U: not freed before, whatever the retention
  std::uint64_t bytes = 0;     // counted in What::trash_bytes
  std::string name;
  std::string encode() const;
  static Result<TrashedRow> decode(std::string_view value);
};

/// W: slice ids [batch, batch + count) belong to the session; bit i of `committed`: batch + i is in
/// a file. The key's batch is the first id. Kept after all bits are set, so that a commit sent
/// again is known; a session's older rows may be forgotten once many newer ones exist.
struct ReservedRow {
  RowHeader header;
  std::uint32_t count = 0;  // 1 to 64
  std::uint64_t committed = 0;
  std::uint64_t map_epoch = 0;

  template <typename Self, typename Codec>
  static void fields(Self& s, Codec& c) {
    c(s.count, s.committed, s.map_epoch);
  }
  std::string encode() const { return encode_row(*this); }
  static Result<ReservedRow> decode(std::string_view value);
};

/// R: what a non-idempotent call answered, so that the same call sent again is answered the same.
struct OutcomeRow {
  RowHeader header;
  std::uint16_t method = 0;  // as in SL_META_METHODS
  std::string reply;         // the reply, encoded
  std::string encode() const;
  static Result<OutcomeRow> decode(std::string_view value);
};

enum class BranchState : std::uint8_t { active = 1, frozen = 2, deleting = 3 };
enum class BranchKind : std::uint8_t { volume = 1, image = 2 };

/// The head of a branch: what every writer of the branch reads and guards. Changed seldom, since
/// each change makes all writers that are under way run again.
struct HeadRow {
  RowHeader header;
  BranchState state = BranchState::active;
  BranchKind kind = BranchKind::volume;
  ViewId view;
  std::uint64_t epoch = 1;  // raised by every snapshot, < 2^32
  std::uint64_t newest_snapshot =
      0;                   // newest live one; rows with an epoch <= it are kept before they change
  SessionId writer;        // set: only this session may write (an image that is being published)
  SessionId only_session;  // the one session that has the branch attached; none: no one, or several
  std::uint32_t attachments = 0;
  std::uint64_t quota_bytes = 0;  // 0: none
  std::uint64_t quota_inodes = 0;
  BranchId base;  // of a clone
  std::uint64_t base_epoch = 0;
  std::uint32_t trash_seconds = 0;          // what is deleted is kept so long; 0: it goes at once
  std::uint32_t trash_min_age_seconds = 0;  // what lived shorter goes at once

  template <typename Self, typename Codec>
  static void fields(Self& s, Codec& c) {
    c(s.state, s.kind, s.view, s.epoch, s.newest_snapshot, s.writer, s.only_session, s.attachments,
      s.quota_bytes, s.quota_inodes, s.base, s.base_epoch, s.trash_seconds,
      s.trash_min_age_seconds);
  }
  std::string encode() const;
  /// Rows from before there was a trash end with base_epoch, and lack the flag.
  static Result<HeadRow> decode(std::string_view value);
};

/// Flag of a head's header: it has the settings of the trash.
inline constexpr std::uint8_t kTrashSettings = 1;

/// Flag of an attachment's header: attached for reading.
inline constexpr std::uint8_t kAttachedReadOnly = 1;

/// The header alone: rows whose fields the reader does not need.
Result<RowHeader> decode_header(std::string_view value, std::string_view what);

}  // namespace starlane::meta
