// Distinct types for the numbers that name things, so that a slice cannot be passed where an inode
// is meant. Values; ordered and hashable. 0 is "none" in every family.
#pragma once
#include <compare>
#include <cstdint>
#include <functional>

namespace starlane {

template <typename Tag, typename Number = std::uint64_t>
struct Id {
  Number value = 0;
  constexpr Id() = default;
  constexpr explicit Id(Number number) : value(number) {}
  constexpr explicit operator bool() const { return value != 0; }
  friend constexpr auto operator<=>(const Id&, const Id&) = default;
};

/// A mutable tree of rows, or a frozen one (a published image): the prefix of its keys.
using BranchId = Id<struct BranchTag>;
/// Unique in a branch, < 2^40, never reused. 1 is the branch's root.
using InodeId = Id<struct InodeTag>;
/// Unique in the cluster, never reused.
using SliceId = Id<struct SliceTag>;
/// One client's life: everything it holds is fenced by it.
using SessionId = Id<struct SessionTag>;
/// Cluster-wide number of a branch, snapshot or image, < 2^24: the upper bits of st_ino.
using ViewId = Id<struct ViewTag, std::uint32_t>;
/// One device of one block server.
using TargetId = Id<struct TargetTag, std::uint32_t>;

inline constexpr InodeId kRootInode{1};
inline constexpr std::uint64_t kInodeLimit = std::uint64_t{1} << 40;

/// A file wherever it is: the branch that holds its rows, and its inode there.
struct FileKey {
  BranchId branch;
  InodeId inode;
  friend constexpr auto operator<=>(const FileKey&, const FileKey&) = default;
};

/// Name of one immutable block. owner: the branch that wrote it.
struct BlockId {
  BranchId owner;
  SliceId slice;
  std::uint32_t index = 0;
  friend constexpr auto operator<=>(const BlockId&, const BlockId&) = default;
};

/// Spreads numbers over a hash table of this process. Not for anything stored or sent.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace starlane

template <typename Tag, typename Number>
struct std::hash<starlane::Id<Tag, Number>> {
  std::size_t operator()(const starlane::Id<Tag, Number>& id) const {
    return starlane::mix64(id.value);
  }
};
template <>
struct std::hash<starlane::FileKey> {
  std::size_t operator()(const starlane::FileKey& key) const {
    return starlane::mix64(key.inode.value ^ starlane::mix64(key.branch.value));
  }
};
template <>
struct std::hash<starlane::BlockId> {
  std::size_t operator()(const starlane::BlockId& id) const {
    return starlane::mix64(id.index ^
                           starlane::mix64(id.slice.value ^ starlane::mix64(id.owner.value)));
  }
};
