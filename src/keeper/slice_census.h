// Which blocks of which slices were seen on the targets, and which slices something refers to: the
// working memory of fsck, about 70 bytes a slice. One thread.
#pragma once
#include <cstdint>
#include <unordered_map>

#include "common/bytes.h"
#include "keeper/slice_blocks.h"

namespace starlane::keeper {

/// No slice is longer than a chunk.
inline constexpr std::uint32_t kMaxSliceBlocks =
    static_cast<std::uint32_t>(kChunkSize / kBlockSize);

struct SeenSlice {
  std::uint16_t present = 0;         // a bit for each block that some target has
  std::uint16_t partial = 0;         // those that are shorter than kBlockSize
  std::uint32_t partial_length = 0;  // of the last one of them
  bool referenced = false;
  std::uint32_t references = 0;  // that are counted one by one
  std::int64_t further = 0;      // what metadata counts beyond the first
};

class SliceCensus {
 public:
  struct Key {
    std::uint64_t owner = 0;
    std::uint64_t slice = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };

  /// Slices of one of `parts` equal parts; the census of each part is taken by itself.
  SliceCensus(std::uint32_t part, std::uint32_t parts) : part_(part), parts_(parts) {}

  static std::uint64_t hash(const Key& key) { return mix64(key.slice ^ mix64(key.owner)); }
  bool covers(const Key& key) const { return hash(key) % parts_ == part_; }

  void saw_block(const BlockInfo& info) {
    SeenSlice& slice = slices_[{info.block.owner.value, info.block.slice.value}];
    const auto bit = static_cast<std::uint16_t>(1U << info.block.index);
    slice.present = static_cast<std::uint16_t>(slice.present | bit);
    if (info.length != kBlockSize) {
      slice.partial = static_cast<std::uint16_t>(slice.partial | bit);
      slice.partial_length = info.length;
    }
  }
  SeenSlice* find(const Key& key) {
    const auto at = slices_.find(key);
    return at == slices_.end() ? nullptr : &at->second;
  }
  const SeenSlice* find(const Key& key) const {
    const auto at = slices_.find(key);
    return at == slices_.end() ? nullptr : &at->second;
  }
  std::size_t size() const { return slices_.size(); }
  template <typename Visit>
  void each(const Visit& visit) const {
    for (const auto& [key, slice] : slices_) visit(key, slice);
  }

 private:
  struct Hash {
    std::size_t operator()(const Key& key) const { return hash(key); }
  };

  const std::uint32_t part_;
  const std::uint32_t parts_;
  std::unordered_map<Key, SeenSlice, Hash> slices_;
};

}  // namespace starlane::keeper
