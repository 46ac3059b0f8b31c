// The entries of one chunk in memory: what is visible of them, and how writes, zeros and truncation
// change the list. Pure; one thread at a time.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "meta/rows.h"

namespace starlane::meta {

/// A visible part of an entry.
struct Piece {
  std::uint32_t position = 0;  // in the chunk
  std::uint32_t length = 0;
  std::size_t entry = 0;  // index of the entry that shows here

  std::uint32_t end() const { return position + length; }
};

/// What shows, in order of position, zeros included; holes are the gaps.
std::vector<Piece> visible_pieces(const std::vector<Entry>& entries);

/// A data slice that a list refers to: how many bytes it has, and how many of them show.
struct SliceUse {
  SliceId slice;
  std::uint64_t held = 0;
  std::uint64_t shown = 0;
  std::uint64_t unseen() const { return held - shown; }
};
/// In order of slices; not those that belong to an image, which keeps them anyway.
std::vector<SliceUse> slice_uses(const std::vector<Entry>& entries);
std::uint64_t unseen_bytes(const std::vector<SliceUse>& uses);
/// To write anew what shows would free more than it takes, and at least a block.
bool is_wasteful(const std::vector<SliceUse>& uses);

class Chunk {
 public:
  Chunk() = default;
  explicit Chunk(SlicesRow row) : row_(std::move(row)) {}

  const SlicesRow& row() const { return row_; }
  const std::vector<Entry>& entries() const { return row_.entries; }
  bool empty() const { return row_.entries.empty(); }

  /// The newest entry; of an inline one, with the content of its slice.
  void add(const Entry& entry, std::string_view inline_content = {});
  /// [first, last) reads as zeros.
  void zero(std::uint32_t first, std::uint32_t last);
  /// Nothing from `length` on.
  void cut(std::uint32_t length);
  /// Drops entries of which nothing shows, and zeros over nothing; an all-inline list becomes one
  /// entry of slice `fresh` if that is asked for (not 0) and it fits.
  void tidy(SliceId fresh);
  /// Bytes that data or inline content covers.
  std::uint64_t covered() const;
  /// Bytes of inline content in the row.
  std::size_t inline_size() const;

 private:
  void drop_unused_inlines();
  void merge_inlines(SliceId fresh);

  SlicesRow row_;
};

}  // namespace starlane::meta
