// What a mount has served, by kind of operation: raised by the threads that serve. Any thread.
#pragma once
#include <array>
#include <cstdint>

#include "metrics/meter.h"

namespace starlane::fuse {

class Operations {
 public:
  struct Kind {
    metrics::Histogram took;  // from read(/dev/fuse) to the answer; its count is that of operations
    metrics::Counter failed;  // answered with an errno, a missing name included
  };
  static constexpr std::uint32_t kKinds = 64;  // above every opcode; 0 takes what is beyond

  Kind& of(std::uint32_t opcode) { return kinds_[opcode < kKinds ? opcode : 0]; }

  metrics::Counter read_bytes, written_bytes;
  metrics::Histogram queued;  // of those for which no thread was free: until one was

 private:
  std::array<Kind, kKinds> kinds_;
};

}  // namespace starlane::fuse
