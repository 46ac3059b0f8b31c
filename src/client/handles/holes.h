// Where a file has data and where holes, from its map. Pure.
#pragma once
#include <cstdint>
#include <vector>

#include "proto/meta.pb.h"

namespace starlane::client {

/// A half-open range of a chunk, or of a file.
struct DataRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  friend bool operator==(const DataRange&, const DataRange&) = default;
};

/// The data of a chunk, in order, not touching each other: later entries shadow earlier ones.
std::vector<DataRange> data_of(const pb::Chunk& chunk);

}  // namespace starlane::client
