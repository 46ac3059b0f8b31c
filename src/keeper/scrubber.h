// Reads every block of every target back now and then, slowly, so that decay is found while there
// is time. How far it is stands with the metadata service, so any keeper goes on from there. One
// thread at a time.
#pragma once
#include <cstdint>
#include <vector>

#include "common/bytes.h"
#include "common/clock.h"
#include "proto/block_service.h"
#include "proto/meta_service.h"

namespace starlane::keeper {

struct ScrubOptions {
  std::uint64_t bytes_per_second = 32_MiB;          // of a target; 0: no scrub but a wanted one
  std::uint64_t wanted_bytes_per_second = 512_MiB;  // while somebody wants a pass at once
  std::chrono::hours interval{24 * 7};              // from the end of a pass to the next
  Milliseconds pace{1'000};                         // between two steps
};

class Scrubber {
 public:
  struct Figures {
    std::uint64_t blocks = 0;
    std::uint64_t bytes = 0;
    std::uint64_t damaged = 0;
    std::uint64_t passes = 0;
  };

  Scrubber(MetaService& meta, BlockService& blocks, const Clock& clock, ScrubOptions options)
      : meta_(meta), blocks_(blocks), clock_(clock), options_(options) {}

  /// Nothing before `pace` has passed; else one bounded step of each target that is due. The first
  /// failure, after every target was tried.
  Status step(const Call& call, const std::vector<TargetId>& targets);
  /// Since this began.
  const Figures& figures() const { return figures_; }

 private:
  Status step_one(const Call& call, pb::ScrubState state);
  bool begin_if_due(pb::ScrubState* state) const;
  Status read_some(const Call& call, pb::ScrubState* state);
  void report(const pb::ScrubState& state, const BlockListing& bad) const;

  MetaService& meta_;
  BlockService& blocks_;
  const Clock& clock_;
  const ScrubOptions options_;
  Nanoseconds stepped_{0};
  Nanoseconds passed_{0};  // between the last two steps
  Figures figures_;
};

}  // namespace starlane::keeper
