// Where a file has data and where holes, from its map. Pure.
#pragma once
#include <cstdint>
#include <optional>
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

/// Looks for the first data, or the first hole, at or after an offset in the chunks of a file,
/// which come in order; those that do not come are holes.
class HoleSearch {
 public:
  enum class For : std::uint8_t { data, hole };
  HoleSearch(For what, std::uint64_t offset) : what_(what), at_(offset) {}

  /// The place, if it lies before the end of this chunk or of the file.
  std::optional<std::uint64_t> look(const pb::Chunk& chunk, std::uint64_t file_length);
  /// After the last chunk: where the data ends that reaches furthest without a hole.
  std::uint64_t reached() const { return at_; }

 private:
  const For what_;
  std::uint64_t at_;  // all from the offset to here is of the other kind
};

}  // namespace starlane::client
