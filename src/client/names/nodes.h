// The nodes that the kernel remembers: how often it looked each up, by which name last, and what it
// was told of the content. As large as the kernel's own inode cache, which ends entries by FORGET.
// Any thread. Locks: a shard's, a leaf.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "client/vfs.h"
#include "common/ids.h"
#include "common/mutex.h"

namespace starlane::client {

/// A name by which a node was found.
struct FoundBy {
  InodeId parent;
  std::string name;
};

class Nodes {
 public:
  /// name empty: not remembered (where no open asks for it).
  void looked_up(Node node, InodeId parent, std::string_view name);
  /// True when the kernel does not know the node any more.
  bool forget(Node node, std::uint64_t lookups);
  std::size_t size();

  std::optional<FoundBy> found_by(Node node);
  /// The kernel moved its entry itself.
  void renamed(Node node, InodeId parent, std::string_view name);

  /// What the kernel holds of the content: `pages`, the version its page cache is right for (0: not
  /// known), and `shown`, the version of the attributes it was last told.
  struct Content {
    std::uint64_t pages = 0;
    std::uint64_t shown = 0;
  };
  Content content(Node node);
  void set_pages(Node node, std::uint64_t version);
  void set_shown(Node node, std::uint64_t version);
  /// This host's own commit: what the kernel held of `previous` is right for `version`.
  void committed(Node node, std::uint64_t previous, std::uint64_t version);

 private:
  struct Known {
    std::uint64_t lookups = 0;
    FoundBy by;
    Content content;
  };
  struct alignas(64) Shard {
    Mutex m;
    std::unordered_map<std::uint64_t, Known> known SL_GUARDED_BY(m);
  };
  Shard& shard_of(Node node) { return shards_[mix64(node.pack()) % shards_.size()]; }
  template <typename Change>
  void change(Node node, Change change);

  std::array<Shard, 64> shards_;
};

}  // namespace starlane::client
