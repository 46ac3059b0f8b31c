#include "client/names/nodes.h"

namespace starlane::client {

void Nodes::looked_up(Node node, InodeId parent, std::string_view name) {
  Shard& shard = shard_of(node);
  MutexLock lock(shard.m);
  Known& known = shard.known[node.pack()];
  ++known.lookups;
  if (!name.empty()) known.by = {parent, std::string(name)};
}

bool Nodes::forget(Node node, std::uint64_t lookups) {
  Shard& shard = shard_of(node);
  MutexLock lock(shard.m);
  const auto at = shard.known.find(node.pack());
  if (at == shard.known.end()) return false;
  if (at->second.lookups > lookups) {
    at->second.lookups -= lookups;
    return false;
  }
  shard.known.erase(at);
  return true;
}

std::size_t Nodes::size() {
  std::size_t all = 0;
  for (Shard& shard : shards_) {
    MutexLock lock(shard.m);
    all += shard.known.size();
  }
  return all;
}

std::optional<FoundBy> Nodes::found_by(Node node) {
  Shard& shard = shard_of(node);
  MutexLock lock(shard.m);
  const auto at = shard.known.find(node.pack());
  if (at == shard.known.end() || at->second.by.name.empty()) return std::nullopt;
  return at->second.by;
}

Nodes::Content Nodes::content(Node node) {
  Shard& shard = shard_of(node);
  MutexLock lock(shard.m);
  const auto at = shard.known.find(node.pack());
  return at == shard.known.end() ? Content{} : at->second.content;
}

template <typename Change>
void Nodes::change(Node node, Change change) {
  Shard& shard = shard_of(node);
  MutexLock lock(shard.m);
  const auto at = shard.known.find(node.pack());
  if (at != shard.known.end()) change(at->second);
}

void Nodes::renamed(Node node, InodeId parent, std::string_view name) {
  change(node, [&](Known& known) { known.by = {parent, std::string(name)}; });
}

void Nodes::set_pages(Node node, std::uint64_t version) {
  change(node, [&](Known& known) { known.content.pages = version; });
}

void Nodes::set_shown(Node node, std::uint64_t version) {
  change(node, [&](Known& known) { known.content.shown = version; });
}

void Nodes::committed(Node node, std::uint64_t previous, std::uint64_t version) {
  change(node, [&](Known& known) {
    if (known.content.pages == previous) known.content.pages = version;
    if (known.content.shown == previous) known.content.shown = version;
  });
}

}  // namespace starlane::client
