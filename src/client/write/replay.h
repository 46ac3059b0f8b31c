// What a daemon that died had acknowledged and not committed, read back from its arena: the next
// daemon, given the memfd by whoever kept it, writes it again and flushes. Pure reading of the
// memfd; one thread.
#pragma once
#include <functional>

#include "client/file_io.h"

namespace starlane::client {

struct ReplayedExtent {
  FileKey file;
  std::uint64_t offset = 0;
  ByteSpan bytes;  // until the callback returns
  bool kill_privileges = false;
  SliceId slice;  // it had been put as; uncommitted as far as the dead daemon knew
  std::uint64_t sequence = 0;
};

struct Replayed {
  std::uint64_t extents = 0, bytes = 0;
};

/// Calls `each` for every extent in the order of the writes; its first failure ends the replay.
/// Errors: invalid (not an arena of a version that this build knows), corrupt (a record lies
/// outside the arena; the others were replayed).
Result<Replayed> replay_arena(int fd, const std::function<Status(const ReplayedExtent&)>& each);

/// Writes it all into `io` (whose arena is another one). Flush before the memfd is given up.
Result<Replayed> replay_arena(int fd, FileIo& io);

}  // namespace starlane::client
