// The node cache: one copy a host of each large file that is read, filled once, mapped by every
// process through passthrough; and the incarnations by which opens are moved to it. Any thread;
// only `open` and `warm` wait.
//
// An inode has incarnation 0 (page cache) and at most one live copy, which has a number of its own.
// `preferred` is what LOOKUP names: the copy once it is complete and some open wanted it, else 0,
// and 0 while anybody writes. An open that arrives elsewhere sets the preference and is answered
// `moved`, once: its caller's next open is served where it arrives.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "client/incarnations.h"
#include "client/node_cache/cache_mount.h"
#include "client/node_cache/filler.h"
#include "common/mutex.h"

namespace starlane::client {

struct CopyRecord;

class NodeCache final : public Incarnations {
 public:
  NodeCache(FileIo& io, const NodeCacheOptions& options);
  ~NodeCache() override;

  void start(KernelNotifier* notifier, const KernelFeatures& features) override SL_EXCLUDES(m_);
  void stop() override SL_EXCLUDES(m_);
  std::uint8_t preferred(FileKey file) override SL_EXCLUDES(m_);
  Result<OpenDecision> open(const Open& open) override SL_EXCLUDES(m_);
  void interrupt(std::uint64_t unique) override SL_EXCLUDES(m_);
  void release(FileKey file, Node node, bool writer) override SL_EXCLUDES(m_);
  void reopened(FileKey file, Node node, bool writer, bool passthrough) override SL_EXCLUDES(m_);
  void forget(FileKey file, Node node) override SL_EXCLUDES(m_);
  void local_write(FileKey file, std::uint64_t offset, ByteSpan bytes) override SL_EXCLUDES(m_);
  void local_zero(FileKey file, std::uint64_t offset, std::uint64_t length) override
      SL_EXCLUDES(m_);
  void local_truncate(FileKey file, std::uint64_t length) override SL_EXCLUDES(m_);
  void local_commit(FileKey file, std::uint64_t previous, const FileState& current) override
      SL_EXCLUDES(m_);
  void remote_change(FileKey file) override SL_EXCLUDES(m_);
  std::optional<Piece> peek(FileKey file, const FileState& state, std::uint64_t offset,
                            std::uint32_t length) override SL_EXCLUDES(m_);
  Status warm(FileKey file, const FileState& state) override SL_EXCLUDES(m_);
  Figures figures() override SL_EXCLUDES(m_);

 private:
  /// The bytes of one version, under one incarnation number.
  struct Copy {
    std::uint8_t number = 0;
    FileState state;
    std::shared_ptr<CacheFile> file;
    std::shared_ptr<Fill> fill;
    std::uint64_t charged = 0;  // of the budget
    std::uint64_t opens = 0;    // passthrough opens: it cannot go
    std::uint64_t waiters = 0;
    std::uint64_t last_used = 0;  // of use_counter_
    bool taken_over = false;      // filled by an earlier daemon
    bool complete() const { return fill->state() == Fill::State::complete; }
    bool ended_badly() const {
      return fill->state() == Fill::State::failed || fill->state() == Fill::State::cancelled;
    }
  };
  using CopyPointer = std::shared_ptr<Copy>;

  /// One kernel inode of the file.
  struct Incarnation {
    std::uint16_t slot = 0;
    bool named = false;  // the kernel may know it, until FORGET
    std::uint64_t cached_opens = 0;
    std::uint64_t passthrough_opens = 0;
    CopyPointer copy;  // what its passthrough opens read; kept while there are any
  };
  struct Ticket {  // this caller was moved: its next open is served
    std::uint32_t pid = 0;
    Nanoseconds until{0};
  };
  struct File {
    std::uint8_t preferred = 0;
    std::uint8_t last_number = 0;
    std::uint16_t noted = 0;    // both, as the ledger has them
    std::uint16_t slot = 0;     // of the view through which it is seen
    Nanoseconds idle_since{0};  // no open since then, while opens is 0
    std::uint64_t opens = 0;
    std::uint64_t writers = 0;
    std::uint64_t busy = 0;  // calls that hold a reference while they wait
    CopyPointer live;
    std::shared_ptr<Fill> push;
    std::uint64_t pushed_version = 0;
    std::vector<std::shared_ptr<Fill>> stopped_pushes;  // perhaps still storing
    std::map<std::uint8_t, Incarnation> incarnations;
    std::vector<Ticket> tickets;
  };
  using Freed = std::vector<CopyPointer>;  // destroyed after the lock is given up

  Result<std::uint8_t> wanted(const Open& open, File& file, Freed& freed) SL_REQUIRES(m_);
  Result<std::uint8_t> join_copy(const Open& open, File& file) SL_REQUIRES(m_);
  Status wait_for_fill(const CopyPointer& copy, std::uint64_t unique, bool patient) SL_REQUIRES(m_);
  Result<OpenDecision> settle(const Open& open, File& file, std::uint8_t want) SL_REQUIRES(m_);
  Result<OpenDecision> serve(const Open& open, File& file) SL_REQUIRES(m_);
  bool take_ticket(File& file, std::uint32_t pid) SL_REQUIRES(m_);
  void drain_pushes(File& file) SL_REQUIRES(m_);

  Status begin_copy(FileKey key, const FileState& state, File& file, Freed& freed) SL_REQUIRES(m_);
  bool make_room(std::uint64_t bytes, Freed& freed) SL_REQUIRES(m_);
  std::optional<FileKey> oldest_idle() SL_REQUIRES(m_);
  void abandon_if_unwanted(File& file, const Fill& fill, Freed& freed) SL_REQUIRES(m_);
  std::uint8_t free_number(File& file) SL_REQUIRES(m_);
  void begin_push(const Open& open, File& file) SL_REQUIRES(m_);
  void stop_push(File& file) SL_REQUIRES(m_);
  void retire(File& file, Freed& freed) SL_REQUIRES(m_);
  void uncharge(Copy& copy) SL_REQUIRES(m_);
  void erase_if_idle(FileKey key) SL_REQUIRES(m_);
  CopyPointer mirror_of(FileKey file, Freed& freed) SL_REQUIRES(m_);
  /// What this host changes of a file goes into its copy, or retires it.
  template <typename Change>
  void mirror(FileKey key, const Change& change) SL_EXCLUDES(m_);
  void grown(FileKey file, const CopyPointer& copy, const Status& written) SL_EXCLUDES(m_);
  void fill_changed(Fill& fill) SL_EXCLUDES(m_);
  double seconds_left(const Copy& copy) SL_REQUIRES(m_);

  // From one daemon to the next (takeover.cc).
  Result<std::unique_ptr<CacheMount>> open_mount();
  void restore() SL_REQUIRES(m_);
  void restore_copy(FileKey key, std::uint8_t number, const CopyRecord& record) SL_REQUIRES(m_);
  CopyPointer copy_of(FileKey key, File& file, std::uint8_t number) SL_REQUIRES(m_);
  void note_file(FileKey key, File& file) SL_REQUIRES(m_);
  void note_copy(FileKey key, const Copy& copy) SL_REQUIRES(m_);
  void strike_copy(FileKey key, const Copy& copy) SL_REQUIRES(m_);

  FileIo& io_;
  const NodeCacheOptions options_;
  const std::uint64_t budget_;

  Mutex m_;  // not held over I/O; before the filler's
  CondVar changed_;
  KernelNotifier* notifier_ = nullptr;
  std::unique_ptr<CacheMount> mount_ SL_GUARDED_BY(m_);
  std::unique_ptr<Filler> filler_;  // from start to stop
  std::unordered_map<FileKey, File> files_ SL_GUARDED_BY(m_);
  std::unordered_map<std::uint64_t, bool> waiting_ SL_GUARDED_BY(m_);  // unique: interrupted
  std::uint64_t used_ SL_GUARDED_BY(m_) = 0;
  std::uint64_t use_counter_ SL_GUARDED_BY(m_) = 0;
  std::uint64_t passthrough_opens_ SL_GUARDED_BY(m_) = 0;
  double rate_ SL_GUARDED_BY(m_);  // bytes per second of the last fills
  std::string reason_ SL_GUARDED_BY(m_) = "not started";
  bool stopping_ SL_GUARDED_BY(m_) = false;
  std::atomic<std::size_t> tracked_{
      0};  // files_.size(), so that most lookups take no lock; relaxed: a race is as if before
};

}  // namespace starlane::client
