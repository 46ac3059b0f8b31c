// Takes writes into the arena and brings them out: whole blocks at once, the rest at a flush or
// when it is a second old; then commits them, in order, and makes them durable within about another
// second. Any thread; blocks.
#pragma once
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "client/attachments.h"
#include "client/blocks/block_client.h"
#include "client/file_io.h"
#include "client/session/requests.h"
#include "client/takeover/ledger.h"
#include "client/write/dirty_files.h"
#include "client/write/escrow.h"
#include "client/write/reclaim.h"
#include "client/write/slice_ids.h"
#include "common/thread_pool.h"

namespace starlane::client {

class WriteBack {
 public:
  struct Options {
    std::size_t put_threads = 4;
    std::size_t commit_threads = 2;
    Milliseconds dirty_age{1000};  // older bytes are put and committed
    Milliseconds durable_every{1000};
    std::uint32_t layout = 0;  // of new slices
    bool taken_over = false;   // so nothing that was committed is known to be durable
    Ledger* ledger = nullptr;  // where failures stand that nobody was told of yet
  };
  /// Hears of a commit before the dirty bytes are forgotten. No lock is held; must not flush or
  /// discard.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void committed(FileKey file, const pb::CommitReply& reply,
                           const std::vector<pb::NewSlice>& slices) = 0;
  };

  WriteBack(MetaService& meta, BlockClient& blocks, Attachments& attachments, Requests& requests,
            Interrupts& interrupts, std::shared_ptr<Arena> arena, Listener& listener,
            const Options& options);
  /// Does not flush: what was not flushed stays in the arena's records, for a replay. Only after
  /// Interrupts::stop and Arena::keep_records.
  ~WriteBack();

  Status write(const FileIo::Write& request);
  Result<std::uint64_t> append(const FileIo::Write& request, Safety safety);
  std::optional<DirtyState> dirty(FileKey file);
  bool put_off(FileKey file, const SetStat& change);
  /// once: a failure is told by this call, and to nobody after it. kept: the next flush tells it.
  enum class Told : std::uint8_t { once, kept };
  Status flush(FileKey file, Safety safety, Told told = Told::once);
  Status flush_branch(BranchId branch, Safety safety);  // of none: all
  void discard(FileKey file, std::uint64_t length);
  /// Somebody else needs the quota's last bytes.
  void return_escrow(BranchId branch);
  void lost(FileKey file, const Status& why);

  /// What shows of a file's dirty bytes in [begin, end).
  struct Shown {
    struct Part {
      std::uint64_t begin = 0;
      Piece piece;
    };
    std::vector<Part> parts;
    std::uint64_t length = 0;  // of the file at least
  };
  Shown show(FileKey file, std::uint64_t begin, std::uint64_t end);

  std::uint64_t dirty_bytes() const { return arena_->used_bytes(); }

 private:
  bool promise_room(const FileIo::Write& request, const Attachment& attachment);
  std::uint64_t dirty_bytes_of(BranchId branch);
  Status write_promised(DirtyFile& file, const FileIo::Write& request,
                        const Attachment& attachment);
  Status write_alone(DirtyFile& file, const FileIo::Write& request, const Attachment& attachment);
  Result<pb::NewSlice> put_slice(FileKey file, ByteSpan bytes, const Attachment& attachment,
                                 const Interrupts::Scope& scope);
  Status commit_alone(DirtyFile& file, const pb::CommitRequest& request,
                      const Attachment& attachment);
  Status begin_write(DirtyFile& file, const FileIo::Write& request, const Attachment& attachment);
  Status write_piece(DirtyFile& file, std::uint64_t offset, ByteSpan bytes, std::uint32_t flags);
  Status take_room(DirtyFile& file, std::uint64_t offset, std::uint64_t bytes,
                   DirtyFile::Room& room);
  Status take_record(DirtyFile& file, std::optional<std::uint32_t>& record);
  Status make_room(DirtyFile& file);
  void write_published(DirtyFile& file, std::uint64_t offset, std::vector<PutJob>& jobs)
      SL_REQUIRES(file.m);

  void start(FileKey key, std::vector<PutJob> jobs);
  void run(DirtyFile& file, const PutJob& job);
  Result<std::uint64_t> put(DirtyFile& file, const PutJob& job, const Interrupts::Scope& scope);
  Status reserve(DirtyFile& file, const PutJob& job, const Interrupts::Scope& scope);
  void note_slice(const PutJob& job);
  void job_done(DirtyFile& file, const PutJob& job, const Result<std::uint64_t>& outcome);
  void remove_blocks(const PendingSlice& slice);
  void remove_blocks(BranchId owner, SliceId slice);

  /// What a flush answers when bytes could not leave: what an application can act on, or io.
  static Status for_application(const Status& status);
  /// Whether the server refused a commit before it began. After any other failure it may have
  /// happened, and a map may name its blocks: those that none names go with the session.
  static bool nothing_happened(const Status& status);
  /// Of what file, and under what right: all that commits have in common.
  static pb::CommitRequest commit_of(FileKey file, const Attachment& attachment);
  void fail(DirtyFile& file, const Status& why) SL_REQUIRES(file.m);
  Status take_failure(DirtyFile& file) SL_REQUIRES(file.m);

  Ledger::Key set_key(const DirtyFile& file) const {
    return {Ledger::Kind::set, file.key.branch.value, file.key.inode.value};
  }
  void forget_set(DirtyFile& file) SL_REQUIRES(file.m);
  void written_over_given_time(DirtyFile& file) SL_REQUIRES(file.m);
  void send_set(DirtyFile& file);

  std::uint64_t begin_flush(DirtyFile& file);
  Status finish_flush(DirtyFile& file, std::uint64_t through, Safety safety, Told told);
  void commit_through(DirtyFile& file, std::uint64_t through, Safety safety);
  void commit_ready(FileKey key);
  std::vector<std::shared_ptr<PendingSlice>> gather(DirtyFile& file, std::uint64_t through)
      SL_REQUIRES(file.m);
  Status commit(const pb::CommitRequest& request, const Attachment& attachment, Safety safety,
                pb::CommitReply* reply);
  void settle(DirtyFile& file, const std::vector<std::shared_ptr<PendingSlice>>& slices,
              const Status& status, const pb::CommitReply& reply) SL_REQUIRES(file.m);
  void commit_slices(DirtyFile& file, std::uint64_t through, Safety safety);
  pb::CommitRequest request_for(DirtyFile& file,
                                const std::vector<std::shared_ptr<PendingSlice>>& slices)
      SL_REQUIRES(file.m);
  void fenced(BranchId branch, const Attachment& attachment);
  Status make_durable();

  bool later(std::function<void(const Interrupts::Scope&)> work);
  void run_background();
  void flush_old(Nanoseconds now);
  void queue_flush(FileKey key);

  MetaService& meta_;
  BlockClient& blocks_;
  Attachments& attachments_;
  Requests& requests_;
  Interrupts& interrupts_;
  const std::shared_ptr<Arena> arena_;
  Listener& listener_;
  const Options options_;
  const std::uint64_t commit_bytes_;  // so much put and not committed is committed at once
  SliceIds ids_;
  DirtyFiles files_;
  Escrow escrow_;
  Reclaim reclaim_;
  std::atomic<std::uint64_t> jobs_{0};     // puts in flight; a hint for who waits for room
  std::atomic<std::uint64_t> commits_{0};  // ordered ones that returned; pairs with durable_
  std::atomic<std::uint64_t> durable_{0};  // of those
  std::atomic<std::uint64_t> session_{0};  // of the last commit
  ThreadPool commit_pool_;
  ThreadPool put_pool_;  // its work may queue work on commit_pool_
  std::thread background_;
};

}  // namespace starlane::client
