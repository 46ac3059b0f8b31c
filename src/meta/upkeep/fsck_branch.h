// The check of one branch's rows against each other, in pages: each page is exact for its snapshot;
// what spans pages is summed up in the state, and looked at again in one snapshot before it is
// called a problem. One thread.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "meta/context.h"
#include "meta/members/flush_marks.h"
#include "proto/meta.pb.h"

namespace starlane::meta {

enum class FsckPhase : std::uint8_t {
  system = 0,     // records of volumes, data sets and branches
  inodes = 1,     // I
  entries = 2,    // D against I
  names = 3,      // N against D and I
  xattrs = 4,     // X against I
  chunks = 5,     // S, whose references are told
  unlinked = 6,   // U against I
  trashed = 7,    // B against I
  pins = 8,       // O against I and sessions
  dead = 9,       // T, told
  reserved = 10,  // W, told, against sessions
  outcomes = 11,  // R against sessions
  usage = 12,     // the branch's accumulators; whether names and links fit together at all
  locate = 13,    // they do not: which inodes it is
  locks = 14,     // L against I and sessions; after the outcomes
};

/// Where a check is and what it has summed up: the cursor of fsck_references.
struct FsckState {
  FsckPhase phase = FsckPhase::system;
  BranchId branch;
  std::string position;  // last key of the phase that was looked at; empty: none
  // Sums of a hash of each inode, once a name: names that inodes count, names there are; unlinked
  // inodes, rows of U and B.
  std::uint64_t counted_names = 0, names = 0;
  std::uint64_t unlinked_inodes = 0, unlinked_rows = 0;
  struct Usage {
    std::int64_t bytes = 0, inodes = 0, held = 0, trash_bytes = 0, trash_inodes = 0;
  };
  Usage usage;         // recounted
  Usage usage_before;  // accumulators when that began
  InodeId directory;   // whose entries are being counted
  std::uint64_t entries = 0, subdirectories = 0;
  InodeId file;  // whose chunks are being added up
  std::uint64_t covered = 0;

  std::string encode() const;
  static Result<FsckState> decode(std::string_view cursor);
};

class FsckBranch {
 public:
  /// Works on state.branch, whose head is `head`.
  FsckBranch(kv::Transaction& t, const HeadRow& head, FsckState& state, pb::FsckReply* reply)
      : t_(t), head_(head), s_(state), reply_(reply) {}

  /// At most `limit` rows of the present phase. True: the branch is done.
  Result<bool> step(std::size_t limit);

 private:
  Result<std::vector<kv::Row>> page(Table table, std::size_t limit);
  void begin(FsckPhase phase);

  Result<FsckState::Usage> counted_usage();
  Status start_branch();
  Status check_inode(const kv::Row& row);
  Status check_directory(InodeId inode, const InodeRow& row);
  Status check_file(InodeId inode, const InodeRow& row);

  Status check_entries(const std::vector<kv::Row>& rows);
  Status check_entry(const kv::Row& row, const std::optional<kv::Row>& inode);
  Status close_directory();

  Status check_name_row(const kv::Row& row);
  Status check_xattr(const kv::Row& row);
  Status check_pin(const kv::Row& row);
  Status check_outcome(const kv::Row& row);
  Status check_locks(const kv::Row& row);
  Status check_session(SessionId session, const std::string& what);

  Status check_chunk(const kv::Row& row);
  Result<std::uint64_t> changed_at(InodeId inode);
  Status close_file();
  Result<std::uint64_t> covered_by(InodeId inode);

  void count_unlinked(InodeId inode);
  Status check_trashed(const kv::Row& row);
  Status check_listed(InodeId inode, const std::string& as);
  Status check_unlinked(const kv::Row& row);
  Status tell_dead(const kv::Row& row);
  Status tell_reserved(const kv::Row& row);

  Result<bool> check_usage();
  void compare(const char* what, std::int64_t before, std::int64_t now, std::int64_t counted);
  Status locate(const std::vector<kv::Row>& rows);
  Status locate_unlinked(const std::vector<InodeId>& inodes);

  pb::FsckReference* tell(const char* kind, const Entry& entry, InodeId inode, std::uint32_t chunk);
  /// A reference that is counted, and the count that it is part of.
  Result<pb::FsckReference*> tell_counted(const char* kind, const Entry& entry, InodeId inode,
                                          std::uint32_t chunk);
  /// One sentence; "in branch N" is put before it.
  void problem(const std::string& text);

  kv::Transaction& t_;
  const HeadRow& head_;
  FsckState& s_;
  pb::FsckReply* reply_;
  std::optional<SyncWindows> windows_;  // read when the first chunk is looked at
  std::map<SessionId, bool> sessions_;  // whether its rows may be there
};

}  // namespace starlane::meta
