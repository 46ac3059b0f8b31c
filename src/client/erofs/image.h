// A frozen tree in the form that the kernel's EROFS mounts: an image (names, attributes, links) and
// where on a device beside it each file's bytes lie. Once mounted, the kernel answers lookups,
// listings, stats, opens and cached reads by itself. The form is the kernel's:
// Documentation/filesystems/erofs.rst. Pure but for the memory that an image takes.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/file_io.h"
#include "common/bytes.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/status.h"

namespace starlane::client::erofs {

inline constexpr std::uint64_t kBlock = 4096;

struct Entry {
  std::string name;
  std::uint32_t node = 0;  // in Tree::nodes
};

/// What few nodes have.
struct Rest {
  std::vector<Entry> entries;  // of a directory, without dots, in any order
  std::string target;          // of a symbolic link
  std::vector<std::pair<std::string, std::string>> xattrs;
};

struct TreeNode {
  std::uint32_t mode = 0, nlink = 0, uid = 0, gid = 0, rdev = 0;
  std::uint32_t parent = 0;  // of a directory
  WallTime mtime;
  InodeId inode;
  FileState state;
  std::unique_ptr<Rest> rest;  // null: nothing
};

/// Node 0 is the root.
struct Tree {
  std::vector<TreeNode> nodes;
};

/// Whose bytes lie from `block` on.
struct Extent {
  std::uint32_t block = 0;
  InodeId inode;
  FileState state;
};

class Image {
 public:
  /// Errors: file_too_large (what such an image cannot say), no_memory. most_bytes: of the image.
  static Result<std::shared_ptr<const Image>> make(Tree tree, std::uint64_t most_bytes);
  ~Image();
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  ByteSpan bytes() const { return bytes_; }
  std::uint64_t data_length() const { return data_blocks_ * kBlock; }

  /// A part of the device: of a file, or zeros where its last block is not full.
  struct Part {
    const Extent* extent = nullptr;  // null: zeros
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
  };
  /// What lies at [offset, offset + length) of the device; less at its end.
  std::vector<Part> parts(std::uint64_t offset, std::uint64_t length) const;

 private:
  Image() = default;

  MutableByteSpan bytes_;
  std::vector<Extent> extents_;  // by block
  std::uint64_t data_blocks_ = 0;
};

}  // namespace starlane::client::erofs
