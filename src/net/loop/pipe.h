// One direction of a loop connection: chunks of bytes with a limit, and a descriptor that is
// readable while there is something to take or the end has been reached. Any thread.
#pragma once
#include <deque>
#include <optional>
#include <vector>

#include "common/clock.h"
#include "common/mutex.h"
#include "common/status.h"
#include "common/unique_fd.h"

namespace starlane::net {

struct Chunk {
  std::vector<std::byte> bytes;
  std::size_t taken = 0;
  bool repeat = false;  // of a call served once more: nobody waits for the answer
};

class Pipe {
 public:
  Pipe();
  /// Waits for room; unavailable once ended, timeout.
  Status push(Chunk chunk, Deadline deadline) SL_EXCLUDES(m_);
  /// Puts it there whatever the limit; dropped once ended.
  void force(Chunk chunk) SL_EXCLUDES(m_);
  /// The next chunk; nothing when none is there now; unavailable at the end.
  Result<std::optional<Chunk>> pop() SL_EXCLUDES(m_);
  /// Until pop would return a chunk or the end; timeout.
  Status wait(Deadline deadline) SL_EXCLUDES(m_);
  /// Nothing more is accepted; what is there can still be taken.
  void end() SL_EXCLUDES(m_);
  int descriptor() const { return ready_.get(); }

 private:
  void add(Chunk chunk) SL_REQUIRES(m_);
  void signal() SL_REQUIRES(m_);

  Mutex m_;
  CondVar changed_;
  std::deque<Chunk> chunks_ SL_GUARDED_BY(m_);
  std::size_t bytes_ SL_GUARDED_BY(m_) = 0;
  bool ended_ SL_GUARDED_BY(m_) = false;
  bool signalled_ SL_GUARDED_BY(m_) = false;
  UniqueFd ready_;
};

}  // namespace starlane::net
