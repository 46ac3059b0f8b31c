// How the slices of one chunk are merged: what of each is still seen, and in which new slices it
// goes. Pure; any thread.
#pragma once
#include <cstdint>
#include <vector>

#include "common/status.h"
#include "proto/meta.pb.h"

namespace starlane::keeper {

/// Bytes of one entry that no later entry shadows.
struct SeenPiece {
  std::uint32_t position = 0;  // in the chunk
  std::uint32_t length = 0;
  std::uint32_t skip = 0;  // into the entry's own range
  std::size_t entry = 0;   // index in the list
};

/// One new slice: its pieces lie in it in order; what lies between them (a bridged hole) is zero.
struct MergedRun {
  std::uint32_t position = 0;
  std::uint32_t length = 0;
  std::vector<SeenPiece> pieces;
};

using EntryList = google::protobuf::RepeatedPtrField<pb::SliceEntry>;

/// Data that is still seen, in order of position; holes and zeros are left out.
std::vector<SeenPiece> seen_pieces(const EntryList& entries);

/// At most `max_runs` (> 0) runs that hold all pieces: pieces that touch share a run, then the
/// smallest holes are bridged.
std::vector<MergedRun> plan_merge(const EntryList& entries, std::size_t max_runs);

/// Whether the list can be read at all: every range inside the chunk and inside its slice. corrupt
/// otherwise.
Status check_entries(const EntryList& entries);

}  // namespace starlane::keeper
