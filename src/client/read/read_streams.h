// Where the readers of one open descriptor are, so that what they will read next is fetched ahead.
// Many streams at once: forked workers share a descriptor, and loaders jump from tensor to tensor
// but go forward inside each. Any thread.
#pragma once
#include <array>
#include <cstdint>

#include "common/bytes.h"
#include "common/mutex.h"

namespace starlane::client {

constexpr std::uint64_t kLargeRead = 128_KiB;  // nobody reads so much at once to stop there

class ReadStreams {
 public:
  struct Advice {
    bool sequential = false;  // the rest of the block will be wanted
    std::uint64_t ahead_begin = 0,
                  ahead_end = 0;  // fetch this without waiting for it; empty: nothing
  };
  /// A read of [offset, offset + length) begins. max_window: the most bytes to be ahead of a
  /// stream.
  Advice note(std::uint64_t offset, std::uint64_t length, std::uint64_t max_window) SL_EXCLUDES(m_);
  /// That read had to wait: the window did not cover the delay of a fetch, so it grows.
  void waited(std::uint64_t offset) SL_EXCLUDES(m_);

 private:
  struct Stream {
    std::uint64_t next = 0;       // end of what was read
    std::uint64_t window = 0;     // 0: not known to be sequential
    std::uint64_t asked_end = 0;  // end of what was fetched ahead
    std::uint64_t used = 0;       // age; 0: free
    bool waited = false;
  };
  Stream* continued_by(std::uint64_t offset, std::uint64_t length) SL_REQUIRES(m_);
  Stream& begin_at(std::uint64_t offset, std::uint64_t length) SL_REQUIRES(m_);
  static void grow(Stream& stream, std::uint64_t length, std::uint64_t max_window);

  Mutex m_;
  std::uint64_t now_ SL_GUARDED_BY(m_) = 0;
  std::array<Stream, 32> streams_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::client
