#include "keeper/scrubber.h"

#include <algorithm>
#include <map>

#include "common/log.h"

namespace starlane::keeper {
namespace {

constexpr std::uint32_t kPage = 512;  // blocks of one step, at most
constexpr Nanoseconds kLongest =
    std::chrono::seconds(5);  // a keeper that slept makes up for no more

WallTime time_of(const pb::Time& time) { return {time.seconds(), time.nanoseconds()}; }

void set_time(const WallTime& from, pb::Time* to) {
  to->set_seconds(from.seconds);
  to->set_nanoseconds(from.nanoseconds);
}

bool under_way(const pb::ScrubState& state) {
  return time_of(state.started()) > time_of(state.finished());
}

}  // namespace

Status Scrubber::step(const Call& call, const std::vector<TargetId>& targets) {
  const Nanoseconds now = clock_.boot();
  if (stepped_ != Nanoseconds(0) && now - stepped_ < options_.pace) return {};
  passed_ =
      stepped_ == Nanoseconds(0) ? Nanoseconds(options_.pace) : std::min(now - stepped_, kLongest);
  stepped_ = now;
  pb::ScrubStates states;
  SL_TRY(meta_.scrub_states(call, {}, &states));
  std::map<std::uint32_t, pb::ScrubState> known;
  for (pb::ScrubState& state : *states.mutable_targets()) known[state.target()] = std::move(state);
  Status first;
  for (const TargetId target : targets) {
    pb::ScrubState& state = known[target.value];
    state.set_target(target.value);
    Status done = step_one(call, std::move(state));
    if (first.ok()) first = std::move(done);
  }
  return first;
}

Status Scrubber::step_one(const Call& call, pb::ScrubState state) {
  if (!under_way(state) && !begin_if_due(&state)) return {};
  if (const Status read = read_some(call, &state); !read.ok())
    return read.with("scrubbing target " + std::to_string(state.target()));
  state.set_wanted(false);  // which is not ours to say
  pb::Empty nothing;
  return meta_.note_scrub(call, state, &nothing);
}

bool Scrubber::begin_if_due(pb::ScrubState* state) const {
  const WallTime now = clock_.wall();
  const auto interval = std::chrono::seconds(options_.interval).count();
  const bool due = options_.bytes_per_second != 0 &&
                   time_of(state->finished()).seconds + interval <= now.seconds;
  if (!due && !state->wanted()) return false;
  set_time(now, state->mutable_started());
  state->clear_cursor();
  state->set_blocks(0);
  state->set_bytes(0);
  state->set_damaged(0);
  return true;
}

/// As many blocks as the time since the last step allows, one at least.
Status Scrubber::read_some(const Call& call, pb::ScrubState* state) {
  const TargetId target(state->target());
  const std::uint64_t rate =
      state->wanted() ? options_.wanted_bytes_per_second : options_.bytes_per_second;
  const auto allowed = static_cast<std::uint64_t>(static_cast<double>(rate) *
                                                  std::chrono::duration<double>(passed_).count());
  const BlockListing ahead = SL_TRY(blocks_.list(call, target, state->cursor(), kPage));
  std::uint32_t count = 0;
  std::uint64_t bytes = 0;
  while (count < ahead.blocks.size() && (count == 0 || bytes < allowed))
    bytes += ahead.blocks[count++].length;
  BlockListing bad;
  if (count > 0) bad = SL_TRY(blocks_.verify(call, target, state->cursor(), count));
  report(*state, bad);
  state->set_cursor(bad.cursor);
  state->set_blocks(state->blocks() + count);
  state->set_bytes(state->bytes() + bytes);
  state->set_damaged(state->damaged() + bad.blocks.size());
  figures_.blocks += count;
  figures_.bytes += bytes;
  figures_.damaged += bad.blocks.size();
  if (!state->cursor().empty()) return {};
  ++figures_.passes;
  set_time(std::max(clock_.wall(), time_of(state->started())), state->mutable_finished());
  SL_LOG(info, "event=scrubbed target={} blocks={} bytes={} damaged={}", state->target(),
         state->blocks(), state->bytes(), state->damaged());
  return {};
}

void Scrubber::report(const pb::ScrubState& state, const BlockListing& bad) const {
  for (const BlockInfo& info : bad.blocks)
    SL_LOG(error, "event=block_damaged target={} owner={} slice={} index={} length={}",
           state.target(), info.block.owner.value, info.block.slice.value, info.block.index,
           info.length);
}

}  // namespace starlane::keeper
