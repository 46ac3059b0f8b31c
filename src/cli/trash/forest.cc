#include "cli/trash/forest.h"

#include <algorithm>

namespace starlane::cli {
namespace {

constexpr std::uint64_t kRoot = 1;
constexpr int kMaxDepth = 1 << 16;

}  // namespace

Result<std::optional<std::string>> LivingPaths::of(std::uint64_t directory) {
  std::vector<std::uint64_t> above;  // whose paths are still to be found, the deepest first
  std::uint64_t at = directory;
  while (!known_.contains(at)) {
    if (above.size() > kMaxDepth) return Status(Errc::corrupt, "a directory is not below the root");
    above.push_back(at);
    pb::NodeRequest request;
    request.mutable_on()->set_branch(branch_.value);
    request.set_inode(at);
    pb::Attributes attributes;
    const Status found = meta_.get_attributes({}, request, &attributes);
    if (!found.ok() && found.code() != Errc::not_found) return found;
    if (at == kRoot)
      known_[at] = "";
    else if (!found.ok() || attributes.nlink() == 0)
      known_[at] = std::nullopt;
    else
      at = attributes.parent();
    if (known_.contains(at) && at == above.back()) above.pop_back();
  }
  std::optional<std::string> path = known_[at];
  for (; !above.empty(); above.pop_back()) {
    std::optional<std::string> name;
    if (path) name = SL_TRY(name_in(at, above.back()));
    if (path && name)
      path = *path + *name + "/";
    else
      path.reset();
    at = above.back();
    known_[at] = path;
  }
  return path;
}

Result<std::optional<std::string>> LivingPaths::name_in(std::uint64_t parent,
                                                        std::uint64_t directory) {
  pb::ReadDirectoryRequest request;
  request.mutable_on()->set_branch(branch_.value);
  request.set_inode(parent);
  for (;;) {
    pb::ReadDirectoryReply page;
    SL_TRY(meta_.read_directory({}, request, &page));
    for (const pb::DirectoryEntry& entry : page.entries())
      if (entry.inode() == directory) return std::optional<std::string>(entry.name());
    if (page.end() || page.entries().empty()) return std::optional<std::string>();
    request.set_after(page.entries(page.entries_size() - 1).name());
  }
}

Result<Forest> Forest::read(MetaService& meta, BranchId branch) {
  Forest forest;
  pb::TrashListRequest request;
  request.set_branch(branch.value);
  do {
    pb::TrashListReply page;
    SL_TRY(meta.trash_list({}, request, &page));
    for (pb::TrashEntry& entry : *page.mutable_entries()) {
      const auto [at, fresh] =
          forest.of_inode_.try_emplace(entry.item().inode(), forest.nodes_.size());
      if (!fresh) continue;
      forest.nodes_.emplace_back();
      forest.nodes_.back().entry = std::move(entry);
    }
    request.set_cursor(page.cursor());
  } while (!request.cursor().empty());
  LivingPaths living(meta, branch);
  for (std::size_t i = 0; i < forest.nodes_.size(); ++i) SL_TRY(forest.plant(living, i));
  forest.add_up();
  return forest;
}

/// A node and what it lay in, from the top down.
Status Forest::plant(LivingPaths& living, std::size_t node) {
  std::vector<std::size_t> above;
  for (std::size_t at = node; nodes_[at].path.empty();) {
    above.push_back(at);
    const auto parent = of_inode_.find(nodes_[at].entry.parent());
    if (parent == of_inode_.end() || above.size() > nodes_.size()) break;
    at = parent->second;
  }
  for (; !above.empty(); above.pop_back()) {
    Node& one = nodes_[above.back()];
    planted_.push_back(above.back());
    const auto parent = of_inode_.find(one.entry.parent());
    if (parent != of_inode_.end()) {
      nodes_[parent->second].children.push_back(above.back());
      one.path = nodes_[parent->second].path + "/" + one.entry.name();
      continue;
    }
    one.root = true;
    const std::optional<std::string> path = SL_TRY(living.of(one.entry.parent()));
    one.parent_lives = path.has_value();
    one.path = path.value_or("?/") + one.entry.name();
  }
  return {};
}

void Forest::add_up() {
  for (std::size_t i = planted_.size(); i-- > 0;) {
    Node& node = nodes_[planted_[i]];
    node.bytes += node.entry.attributes().bytes();
    for (const std::size_t child : node.children) {
      node.bytes += nodes_[child].bytes;
      node.inodes += nodes_[child].inodes;
    }
  }
}

std::optional<std::size_t> Forest::by_inode(std::uint64_t inode) const {
  const auto at = of_inode_.find(inode);
  if (at == of_inode_.end()) return std::nullopt;
  return at->second;
}

std::vector<std::size_t> Forest::at(const std::string& path) const {
  std::vector<std::size_t> below;
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    if (nodes_[i].path == path) return {i};
    const bool inside = path.empty() || nodes_[i].path.starts_with(path + "/");
    if (nodes_[i].root && inside) below.push_back(i);
  }
  return below;
}

}  // namespace starlane::cli
