// The bytes of files: reads through the block cache with read-ahead, writes into the arena and out
// as slices, under one roof so that a read sees what this host wrote. Knows branches and inodes,
// not names. Any thread.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "client/vfs.h"
#include "common/ids.h"
#include "common/landing.h"
#include "proto/block_service.h"
#include "proto/meta_service.h"

namespace starlane::client {

/// What the namespace knows of a file's committed state, as of the last word from the metadata
/// server.
struct FileState {
  std::uint64_t version = 0;
  std::uint64_t length = 0;
};

/// One open descriptor's way through a file: where its streams are, for read-ahead. Kept by its
/// handle.
class ReadStreams;

/// What is not committed yet, as getattr must show it on this host.
struct DirtyState {
  std::uint64_t length = 0;  // the file is at least so long
  std::uint64_t bytes = 0;   // waiting to be committed, over data or over holes
  WallTime mtime;
  bool mtime_given = false;    // it was set, not written
  WallTime ctime;              // of the last write or of `set`
  std::optional<SetStat> set;  // goes with the next commit
};

class FileIo {
 public:
  /// Called after each commit, with the new attributes and the version that they replaced; from any
  /// thread, no lock held.
  using Committed =
      std::function<void(FileKey, const pb::Attributes&, std::uint64_t previous_version)>;

  virtual ~FileIo() = default;

  /// Who hears of commits; once, before the first write.
  virtual void on_commit(Committed committed) = 0;

  virtual std::shared_ptr<ReadStreams> new_streams() = 0;

  /// Committed bytes under dirty ones. known: the namespace's latest; a cached map of another
  /// version is read again. Waits while servers are away. Errors: corrupt (as io), interrupted, io.
  virtual Result<std::vector<Piece>> read(FileKey file, const FileState& known,
                                          std::uint64_t offset, std::uint32_t length,
                                          ReadStreams* streams, std::uint64_t unique) = 0;

  /// Into the arena, with its record, then it returns; blocks while the budget of dirty bytes is
  /// used up. Whole blocks go out at once. Stamped with the branch's present Attachment
  /// (attachments.h, given to the implementation): when that has been fenced before the commit, the
  /// bytes are dropped and the next flush fails with io, once.
  struct Write {
    FileKey file;
    FileState known;
    std::uint64_t offset = 0;
    ByteSpan bytes;
    bool kill_privileges = false;
    std::uint64_t unique = 0;  // of an append: the same one, sent again, is done once
  };
  virtual Status write(const Write& request) = 0;

  /// Where the server appended it: put and committed before it returns (for volumes several
  /// sessions write).
  virtual Result<std::uint64_t> append(const Write& request, Safety safety) = 0;

  virtual std::optional<DirtyState> dirty(FileKey file) = 0;

  /// Mode, owner and given times of a file with dirty bytes, to go with their commit: for who knows
  /// that nobody else looks at the file until then, and that the server will not refuse it. They
  /// are as safe as the bytes. False: not taken, there is no commit to come that could take them.
  virtual bool put_off(FileKey file, const SetStat& change) = 0;

  /// What an earlier process had acknowledged can never be committed: the next flush tells it.
  virtual void lost(FileKey file, const Status& why) = 0;

  /// Everything written to the file so far is put and committed. The first failure since the last
  /// flush is told once.
  virtual Status flush(FileKey file, Safety safety) = 0;
  /// What was written so far is committed when this returns, or has failed, which the next flush
  /// tells: for callers that need an order, and may not be those who wrote.
  virtual void push_out(FileKey file) = 0;
  virtual Status flush_branch(BranchId branch, Safety safety) = 0;
  virtual Status flush_all(Safety safety) = 0;

  /// Dirty bytes at and beyond `length` are forgotten (truncate, unlink); 0: all of the file's. In
  /// order with writes.
  virtual void discard(FileKey file, std::uint64_t length) = 0;
  /// Cached maps of the file are read again at the next use (truncate, a remote change).
  virtual void invalidate(FileKey file) = 0;

  /// Straight into `out`, past the block cache: how the node cache fills, and programs that bring
  /// their own memory. All, or an error; may be less at end of file.
  virtual Result<std::uint64_t> read_into(FileKey file, const FileState& known,
                                          std::uint64_t offset, const Landing& out,
                                          std::uint64_t unique) = 0;

  /// What is set aside of the branch's quota for writes to come goes back: somebody else needs it.
  virtual void return_escrow(BranchId branch) = 0;

  virtual void interrupt(std::uint64_t unique) = 0;

  struct Figures {
    std::uint64_t dirty_bytes = 0, dirty_limit_bytes = 0, cached_bytes = 0, fetched_bytes = 0,
                  put_bytes = 0;
  };
  virtual Figures figures() = 0;
};

}  // namespace starlane::client
