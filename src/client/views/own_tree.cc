#include "client/views/own_tree.h"

#include <sys/stat.h>

namespace starlane::client {
namespace {

/// FNV-1a: st_ino is the same on all hosts, so the hash is ours.
std::uint64_t stable_hash(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

constexpr std::uint64_t kHashed = kInodeLimit / 2;  // inodes of names lie at and above

}  // namespace

InodeId OwnTree::inode_of(const std::string& data_set) {
  MutexLock lock(m_);
  for (std::uint64_t hash = stable_hash(data_set);; ++hash) {
    const InodeId inode(kHashed | (hash & (kHashed - 1)));
    const auto [at, added] = data_sets_.emplace(inode, data_set);
    if (added || at->second == data_set) return inode;
  }
}

std::optional<std::string> OwnTree::data_set_of(InodeId inode) {
  MutexLock lock(m_);
  const auto at = data_sets_.find(inode);
  if (at == data_sets_.end()) return std::nullopt;
  return at->second;
}

std::optional<std::string> OwnTree::path_of(InodeId inode) {
  if (inode == kRootInode) return "";
  if (inode == kPublicInode) return "public";
  if (inode == kVolumesInode) return "volumes";
  const auto data_set = data_set_of(inode);
  if (!data_set) return std::nullopt;
  return "public/" + *data_set;
}

std::vector<OwnTree::Entry> OwnTree::list(InodeId directory, const Listing& listing) {
  std::vector<Entry> entries;
  if (directory == kRootInode) {
    entries.push_back({"public", kPublicInode, std::nullopt});
    entries.push_back({"volumes", kVolumesInode, std::nullopt});
  } else if (directory == kPublicInode) {
    for (const auto& [name, versions] : listing.images)
      entries.push_back({name, inode_of(name), std::nullopt});
  } else if (directory == kVolumesInode) {
    for (const auto& [name, item] : listing.volumes) entries.push_back({name, InodeId(), item});
  } else if (const auto data_set = data_set_of(directory)) {
    const auto at = listing.images.find(*data_set);
    if (at == listing.images.end()) return entries;
    for (const auto& [version, item] : at->second) entries.push_back({version, InodeId(), item});
  }
  return entries;
}

std::optional<OwnTree::Entry> OwnTree::find(InodeId directory, std::string_view name,
                                            const Listing& listing) {
  const std::string wanted(name);
  if (directory == kRootInode) {
    if (name == "public") return Entry{wanted, kPublicInode, std::nullopt};
    if (name == "volumes") return Entry{wanted, kVolumesInode, std::nullopt};
  } else if (directory == kPublicInode) {
    if (listing.images.contains(wanted)) return Entry{wanted, inode_of(wanted), std::nullopt};
  } else {
    AttachTarget target;
    if (directory == kVolumesInode) {
      target.volume = wanted;
    } else if (const auto data_set = data_set_of(directory)) {
      target.image_name = *data_set;
      target.image_version = wanted;
    } else {
      return std::nullopt;
    }
    if (const CatalogueItem* item = listing.find(target)) return Entry{wanted, InodeId(), *item};
  }
  return std::nullopt;
}

Result<Attributes> OwnTree::attributes(InodeId inode) {
  const bool fixed = inode == kRootInode || inode == kPublicInode || inode == kVolumesInode;
  if (!fixed && !data_set_of(inode)) return {Errc::stale_handle, "no such directory in this mount"};
  Attributes attributes;
  attributes.inode = inode;
  attributes.mode = S_IFDIR | 0555;
  attributes.nlink = 2;
  attributes.atime = attributes.mtime = attributes.ctime = mounted_;
  attributes.version = 1;
  attributes.parent = fixed ? kRootInode : kPublicInode;
  return attributes;
}

}  // namespace starlane::client
