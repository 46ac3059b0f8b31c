// Keys of every metadata row: space u8, branch u64, table u8, rest; big-endian, so that rows sort
// as their numbers do. docs/formats.md ("Rows") is the reference. Pure; any thread.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "common/ids.h"
#include "common/status.h"

namespace starlane::meta {

enum class Space : std::uint8_t { system = 1, branch = 2, shared = 3 };

/// Letters are unique over all spaces. Tables marked (a) hold accumulators only and must not be
/// scanned.
enum class Table : std::uint8_t {
  // system: branch 0
  volume = 'v',   // name -> VolumeRow
  head = 'h',     // branch -> HeadRow, the row that every writer of the branch guards
  view = 'w',     // view u32 -> branch
  id_pool = 'i',  // Pool u8, branch (0: of the cluster) -> next free number
  session = 's',  // session; the row is there iff the session lives. Heartbeats never change it
  session_by_nonce = 'n',  // nonce -> session
  dead_session = 'd',      // session whose reservations, pins and outcomes are still to be removed
  heard = 't',             // (a) session: time of the last heartbeat, max
  attachment = 'a',        // branch, session; the header's epoch is the attachment's
  attached_by = 'b',       // session, branch: the same, found from the session
  map = 'm',               // epoch -> cluster map
  image = 'g',             // name, 0, version -> ImageRow
  cluster = 'c',           // the cluster's record
  counter = 'y',           // (a) what u8
  reaper = 'r',            // puts those who settle dead references in one order
  flushed = 'f',           // up to when everything committed had its blocks on their devices
  scrub = 'k',             // target u32: how far its blocks were read back
  window = 'l',            // time from which on a life that ended badly committed without that
  // branch
  inode = 'I',   // inode
  entry = 'D',   // parent, name
  name = 'N',    // inode, parent, name: names of a file beyond the one that I.parent belongs to
  slices = 'S',  // inode, chunk u32
  xattr = 'X',   // inode, name
  accumulator = 'A',  // (a) inode (0: of the branch), what u8, generation u64, epoch u64 (0)
  history = 'H',      // the row's table and rest, last epoch: reserved for snapshots
  dead = 'T',  // death epoch, birth epoch, slice, inode, chunk u32, version of the file at death
  unlinked = 'U',    // ready time, inode
  trashed = 'B',     // time of deletion, inode: deleted, and kept for a while
  pin = 'O',         // inode, session: holds an unlinked file
  reserved = 'W',    // session, batch
  outcome = 'R',     // session, request
  lock = 'L',        // inode
  write_open = 'V',  // inode, session: reserved for write opens
  degraded = 'G',    // slice: reserved for degraded slices
  long_chunk = 'M',  // inode, chunk u32: a list to be merged, without value
  // shared: branch 0
  count = 'K',  // (a) slice: references beyond the first
  pins =
      'P',  // (a) image's branch, 0: references from elsewhere to slices that a frozen image owns
};

enum class Pool : std::uint8_t {
  branch = 1,
  view = 2,
  slice = 3,
  inode = 4,
  session = 5,
  attachment = 6
};

/// What an accumulator of table A sums or takes the greatest of.
enum class What : std::uint8_t {
  counts = 1,   // of a directory: entries + (subdirectories << 40)
  changed = 2,  // of a directory, by its time generation: greatest time of a change of its entries,
                // ns since 1970
  version = 3,  // of a directory: changes of its entries
  bytes = 4,    // of the branch (inode 0): live bytes of files that have a name, and escrow_all
  inodes = 5,   // of the branch: files, directories and so on that have a name, the root included
  held = 6,     // of the branch: bytes of slices whose references died (rows of T)
  trash_bytes = 7,   // of the branch: bytes of what is in the trash, as its rows (B) have them
  trash_inodes = 8,  // of the branch: rows of B
  escrow = 9,        // of the branch, by session: minus the bytes of the quota set aside for it
  escrow_all = 10,   // of the branch: all that is set aside; counted in `bytes` as well
};

struct KeyRange {
  std::string first;  // included
  std::string last;   // excluded
};

/// The whole of a table of a branch; of a system or shared table with branch 0.
KeyRange table_range(Space space, BranchId branch, Table table);
/// All keys that begin with `prefix`.
KeyRange prefix_range(std::string prefix);

// System.
std::string volume_key(std::string_view name);
std::string head_key(BranchId branch);
std::string view_key(ViewId view);
std::string id_pool_key(Pool pool, BranchId branch = {});
std::string session_key(SessionId session);
std::string session_by_nonce_key(std::string_view nonce);
std::string dead_session_key(SessionId session);
std::string heard_key(SessionId session);
std::string attachment_key(BranchId branch, SessionId session);
KeyRange attachments_of(BranchId branch);
std::string attached_by_key(SessionId session, BranchId branch);
KeyRange attached_by(SessionId session);
std::string map_key(std::uint64_t epoch);
std::string image_key(std::string_view name, std::string_view version);
KeyRange image_versions(std::string_view name);
std::string cluster_key();
std::string counter_key(std::uint8_t what);
std::string reaper_key();
std::string flushed_key();
std::string scrub_key(TargetId target);
std::string window_key(std::uint64_t since_ns);

// Of a branch.
std::string inode_key(BranchId branch, InodeId inode);
std::string entry_key(BranchId branch, InodeId parent, std::string_view name);
KeyRange entries_of(BranchId branch, InodeId parent);
std::string name_key(BranchId branch, InodeId inode, InodeId parent, std::string_view name);
KeyRange names_of(BranchId branch, InodeId inode);
std::string slices_key(BranchId branch, InodeId inode, std::uint32_t chunk);
/// Chunks [first, last); last 2^32 or more: to the end.
KeyRange slices_of(BranchId branch, InodeId inode, std::uint64_t first = 0,
                   std::uint64_t last = std::uint64_t{1} << 32);
std::string xattr_key(BranchId branch, InodeId inode, std::string_view name);
KeyRange xattrs_of(BranchId branch, InodeId inode);
std::string accumulator_key(BranchId branch, InodeId inode, What what,
                            std::uint64_t generation = 0);
std::string unlinked_key(BranchId branch, std::uint64_t ready_ns, InodeId inode);
std::string trashed_key(BranchId branch, std::uint64_t deleted_ns, InodeId inode);
std::string pin_key(BranchId branch, InodeId inode, SessionId session);
KeyRange pins_of(BranchId branch, InodeId inode);
std::string lock_key(BranchId branch, InodeId inode);
std::string reserved_key(BranchId branch, SessionId session, std::uint64_t batch);
KeyRange reserved_by(BranchId branch, SessionId session);
std::string outcome_key(BranchId branch, SessionId session, std::uint64_t request);
/// Outcomes of a session below `request`.
KeyRange outcomes_below(BranchId branch, SessionId session, std::uint64_t request);
std::string long_chunk_key(BranchId branch, InodeId inode, std::uint32_t chunk);

struct DeadKey {
  BranchId branch;
  std::uint64_t death = 0;
  std::uint64_t birth = 0;
  SliceId slice;
  InodeId inode;
  std::uint32_t chunk = 0;
  std::uint64_t version = 0;  // of the file at death: a reference that dies twice has two rows
};
std::string dead_key(const DeadKey& dead);

// Shared.
std::string count_key(SliceId slice);
std::string image_pins_key(BranchId image);

/// Takes a key apart in order; what is missing reads as 0 and makes ok() false.
class KeyReader {
 public:
  explicit KeyReader(std::string_view key);
  Space space() const { return space_; }
  BranchId branch() const { return branch_; }
  Table table() const { return table_; }
  std::uint8_t u8();
  std::uint32_t u32();
  std::uint64_t u64();
  /// All that is left.
  std::string_view rest();
  bool ok() const { return ok_; }
  /// ok, and nothing is left.
  bool done() const { return ok_ && left_.empty(); }

 private:
  std::string_view left_;
  bool ok_ = true;
  Space space_{};
  BranchId branch_;
  Table table_{};
};

Result<DeadKey> parse_dead_key(std::string_view key);

struct EntryKey {
  BranchId branch;
  InodeId parent;
  std::string_view name;  // points into the key
};
Result<EntryKey> parse_entry_key(std::string_view key);

struct SlicesKey {
  BranchId branch;
  InodeId inode;
  std::uint32_t chunk = 0;
};
Result<SlicesKey> parse_slices_key(std::string_view key);

struct UnlinkedKey {
  BranchId branch;
  std::uint64_t ready_ns = 0;
  InodeId inode;
};
Result<UnlinkedKey> parse_unlinked_key(std::string_view key);

struct TrashedKey {
  BranchId branch;
  std::uint64_t deleted_ns = 0;
  InodeId inode;
};
Result<TrashedKey> parse_trashed_key(std::string_view key);

}  // namespace starlane::meta
