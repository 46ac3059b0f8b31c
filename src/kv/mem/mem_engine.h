// The engine in memory, for tests: the real resolver over a disk that can be crashed, with
// conflicts, failures and lost answers on demand or by seed. Any thread; crash() too, and
// transactions from before it then fail.
#pragma once
#include <deque>
#include <functional>
#include <memory>

#include "common/mutex.h"
#include "common/rng.h"
#include "kv/engine.h"
#include "kv/mem/mem_storage.h"
#include "kv/occ/resolver.h"

namespace starlane::kv::mem {

/// What may happen to a commit (or, read_io, to a read).
enum class Fault : std::uint8_t {
  none,
  conflict,     // nothing happened
  io,           // an error, and by the seed's coin it happened or not
  lost_answer,  // it happened, the caller is told unavailable
  read_io,
};

struct Faults {
  std::uint64_t seed = 1;
  unsigned conflict_one_in = 0;  // 0: never
  unsigned io_one_in = 0;
  unsigned lost_answer_one_in = 0;
  unsigned read_io_one_in = 0;
};

class MemEngine final : public Engine {
 public:
  explicit MemEngine(occ::Options options = {.name = "mem"});
  ~MemEngine() override;

  std::unique_ptr<Transaction> begin() override;
  Status flush() override;
  void set_before_flush(std::function<Status()> hook) override;
  Description describe() override;

  void set_faults(const Faults& faults) SL_EXCLUDES(m_);
  /// For the next commit (or read) of anyone; several queue up.
  void fail_next(Fault fault) SL_EXCLUDES(m_);
  /// The process dies and starts again. drop_unsynced: power loss; of the unsynced writes a random
  /// prefix survives. Commits under way come out as unavailable, or as they would have.
  void crash(bool drop_unsynced) SL_EXCLUDES(m_);
  Disk& disk() { return *disk_; }

 private:
  friend class FaultyTransaction;
  std::shared_ptr<occ::Resolver> resolver() SL_EXCLUDES(m_);
  std::shared_ptr<occ::Resolver> start();
  Fault draw_commit() SL_EXCLUDES(m_);
  bool draw_read() SL_EXCLUDES(m_);
  bool toss() SL_EXCLUDES(m_);

  const std::shared_ptr<Disk> disk_ = std::make_shared<Disk>();
  const occ::Options options_;
  Mutex m_;
  std::shared_ptr<occ::Resolver> resolver_ SL_GUARDED_BY(m_);
  std::function<Status()> hook_ SL_GUARDED_BY(m_);
  Faults faults_ SL_GUARDED_BY(m_);
  Rng rng_ SL_GUARDED_BY(m_){1};
  std::deque<Fault> next_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::kv::mem
