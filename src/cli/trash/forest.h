// What the trash of a volume holds, with the paths that it had: trees, whose roots lay in
// directories that still live or are gone for good. Read once, held in memory; one thread.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/ids.h"
#include "proto/meta_service.h"

namespace starlane::cli {

/// Paths of directories that have names, from the root of their volume; asked once each.
class LivingPaths {
 public:
  LivingPaths(MetaService& meta, BranchId branch) : meta_(meta), branch_(branch) {}
  /// "" for the root, else ending with '/'; nothing: there is no such directory any more.
  Result<std::optional<std::string>> of(std::uint64_t directory);

 private:
  Result<std::optional<std::string>> ask(std::uint64_t directory);
  Result<std::optional<std::string>> name_in(std::uint64_t parent, std::uint64_t directory);

  MetaService& meta_;
  const BranchId branch_;
  std::unordered_map<std::uint64_t, std::optional<std::string>> known_;
};

class Forest {
 public:
  struct Node {
    pb::TrashEntry entry;
    std::string path;           // "?/name" where the directory is gone
    bool parent_lives = false;  // else it is in the forest, or gone
    bool root = false;          // its directory is not in the forest
    std::vector<std::size_t> children;
    std::uint64_t bytes = 0;  // of the whole tree
    std::uint64_t inodes = 1;
  };

  static Result<Forest> read(MetaService& meta, BranchId branch);

  /// In the order of deletion, as the clock had it.
  const std::vector<Node>& nodes() const { return nodes_; }
  std::optional<std::size_t> by_inode(std::uint64_t inode) const;
  /// What restoring `path` means, as roots of trees: the one that was deleted last under this path,
  /// or else all that lay below it.
  std::vector<std::size_t> at(const std::string& path) const;

 private:
  Status plant(LivingPaths& living, std::size_t node);
  void add_up();

  std::vector<Node> nodes_;
  std::vector<std::size_t> planted_;  // what is in a directory after it
  std::unordered_map<std::uint64_t, std::size_t> of_inode_;
};

}  // namespace starlane::cli
