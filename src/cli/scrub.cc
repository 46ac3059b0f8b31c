// scrub: reads every block back at once, by the keeper; without waiting for its turn.
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/command.h"
#include "cli/terminal.h"

namespace starlane::cli {
namespace {

using nlohmann::json;

Result<std::map<std::uint32_t, pb::ScrubState>> states_of(MetaService& meta) {
  pb::ScrubStates states;
  SL_TRY(meta.scrub_states({}, {}, &states));
  std::map<std::uint32_t, pb::ScrubState> all;
  for (const pb::ScrubState& state : states.targets()) all[state.target()] = state;
  return all;
}

Status want(MetaService& meta) {
  pb::ClusterMap map;
  SL_TRY(meta.cluster_map({}, {}, &map));
  for (const pb::Target& target : map.targets()) {
    pb::ScrubState wish;
    wish.set_target(target.id());
    wish.set_wanted(true);
    pb::Empty nothing;
    SL_TRY(meta.note_scrub({}, wish, &nothing));
  }
  return {};
}

/// Until no target is waited for: all that was found.
Status await(MetaService& meta, pb::ScrubState* sum) {
  for (bool waiting = true; waiting;) {
    const auto states = SL_TRY(states_of(meta));
    waiting = false;
    sum->Clear();
    for (const auto& [target, state] : states) {
      waiting = waiting || state.wanted();
      sum->set_blocks(sum->blocks() + state.blocks());
      sum->set_bytes(sum->bytes() + state.bytes());
      sum->set_damaged(sum->damaged() + state.damaged());
    }
    if (waiting) std::this_thread::sleep_for(Milliseconds(200));
  }
  return {};
}

Status run(Program& program, bool wait) {
  const auto connection = SL_TRY(program.connect());
  SL_TRY(want(connection->meta()));
  if (!wait) {
    if (!program.globals().json)
      std::printf("the keeper reads all blocks back now; `starlane status` says how far it is\n");
    return {};
  }
  pb::ScrubState sum;
  SL_TRY(await(connection->meta(), &sum));
  if (program.globals().json)
    std::printf("%s\n",
                json{{"blocks", sum.blocks()}, {"bytes", sum.bytes()}, {"damaged", sum.damaged()}}
                    .dump()
                    .c_str());
  else
    std::printf("%s blocks (%s) read back, %s damaged\n", human_count(sum.blocks()).c_str(),
                human_bytes(sum.bytes()).c_str(), human_count(sum.damaged()).c_str());
  if (sum.damaged() == 0) return {};
  return Status(Errc::corrupt,
                std::to_string(sum.damaged()) +
                    " blocks are damaged; `starlane fsck --verify` says of which files");
}

}  // namespace

void add_scrub_command(Program& program) {
  auto wait = std::make_shared<bool>(false);
  CLI::App* command =
      program.add(program.app(), "scrub", "Has the keeper read every block back at once",
                  "  starlane scrub --wait\n"
                  "It does so anyway, slowly, every few days (--scrub-rate, --scrub-days).\n",
                  [&program, wait] { return run(program, *wait); });
  command->add_flag("--wait", *wait, "Until it is done; damage is a failure then");
}

}  // namespace starlane::cli
