// The keeper: background work as an ordinary client of metadata and block servers. It ends dead
// sessions, frees what was unlinked, removes the blocks of dead slices, merges long lists of slices
// and reads blocks back. Every step may be cut short and is done again; several keepers may run at
// once. Any thread may call anything; run_once calls take turns.
#pragma once
#include <cstdint>
#include <string>
#include <thread>

#include "common/clock.h"
#include "common/mutex.h"
#include "keeper/merger.h"
#include "keeper/scrubber.h"
#include "keeper/slice_blocks.h"
#include "proto/block_service.h"
#include "proto/meta_service.h"

namespace starlane::keeper {

struct Options {
  std::string host = "localhost";
  Milliseconds pace{500};      // between two runs of the thread, when there is little to do
  Milliseconds busy_pace{20};  // when the last run left work behind
  std::uint32_t housekeeping_steps = 32;  // of a run
  std::uint32_t dead_slices_per_run = 2048;
  std::uint32_t merges_per_run = 16;            // chunks
  std::uint64_t merge_bytes_per_run = 256_MiB;  // written; the chunk that goes beyond is finished
  std::uint32_t remove_threads = 8;
  ScrubOptions scrub;
  Milliseconds call_timeout{60'000};
};

/// Since the start of this keeper, for status and metrics.
struct Figures {
  std::uint64_t runs = 0;
  std::uint64_t failed_runs = 0;
  std::uint64_t removed_slices = 0;
  std::uint64_t merged_chunks = 0;
  std::uint64_t merged_bytes = 0;
  std::uint64_t expired_sessions = 0;
  std::uint64_t freed_inodes = 0;
  std::uint64_t orphan_slices = 0;
  std::uint64_t forgotten_outcomes = 0;
  std::uint64_t removed_rows = 0;
  Scrubber::Figures scrub;
  bool behind = false;       // the last run left work
  std::string last_failure;  // empty: the last run had none
};

class Keeper {
 public:
  /// meta, blocks (answers for every target of the map) and clock outlive the keeper.
  Keeper(MetaService& meta, BlockService& blocks, const Clock& clock, Options options);
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  /// One bounded round of everything. True: there is more to do at once. The first failure, after
  /// every stage was tried.
  Result<bool> run_once() SL_EXCLUDES(m_);

  /// Runs rounds on a thread of its own until stop, which waits for the round in progress and ends
  /// the session.
  void start();
  void stop();

  Figures figures() const SL_EXCLUDES(m_);

 private:
  Call call() const;
  Status ensure_session();
  Status renew_session();
  void end_session();
  Status refresh_map();
  Status keep_house(bool* more);
  Status remove_dead(bool* more);
  Status remove_some(const pb::DeadSlicesReply& dead);
  Status merge_long(bool* more);
  Status scrub();
  Result<bool> run_round();
  void take_turn() SL_EXCLUDES(m_);
  void end_turn() SL_EXCLUDES(m_);
  void note(const Status& status, bool more);
  void run_thread();

  MetaService& meta_;
  const Clock& clock_;
  const Options options_;

  // Of whoever has the turn.
  SliceBlocks blocks_;
  Merger merger_;
  Scrubber scrubber_;
  SessionId session_;
  Nanoseconds renewed_{0};
  Nanoseconds renew_every_{0};
  std::string nonce_;
  std::uint32_t merges_ = 0;  // since the session began
  std::string dead_cursor_;
  std::string long_cursor_;

  mutable Mutex m_;
  CondVar wake_;
  Figures figures_ SL_GUARDED_BY(m_);
  bool taken_ SL_GUARDED_BY(m_) = false;  // somebody has the turn
  bool stopping_ SL_GUARDED_BY(m_) = false;
  std::thread thread_;
};

}  // namespace starlane::keeper
