// The mount's own directories, slot 0: /, /public, /public/NAME and /volumes. Nothing in them is
// stored: they show the catalogue. Any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "client/names/attributes.h"
#include "client/views/catalogue.h"
#include "common/ids.h"
#include "common/mutex.h"

namespace starlane::client {

/// Of slot 0 in st_ino: no branch or image gets it.
inline constexpr ViewId kOwnView{(1u << 24) - 1};
inline constexpr InodeId kPublicInode{2};
inline constexpr InodeId kVolumesInode{3};

class OwnTree {
 public:
  explicit OwnTree(WallTime mounted) : mounted_(mounted) {}

  /// What a name is: a directory of this tree, or the root of a view.
  struct Entry {
    std::string name;
    InodeId inode;                      // of this tree; else none
    std::optional<CatalogueItem> item;  // the view
  };

  std::optional<Entry> find(InodeId directory, std::string_view name, const Listing& listing)
      SL_EXCLUDES(m_);
  std::vector<Entry> list(InodeId directory, const Listing& listing) SL_EXCLUDES(m_);
  /// stale_handle: no such inode was given out.
  Result<Attributes> attributes(InodeId inode) SL_EXCLUDES(m_);
  /// "", "volumes", "public" or "public/NAME", without a slash at its end; nothing: no such inode.
  std::optional<std::string> path_of(InodeId inode) SL_EXCLUDES(m_);

 private:
  /// The same on every host, unless two names meet.
  InodeId inode_of(const std::string& data_set) SL_EXCLUDES(m_);
  std::optional<std::string> data_set_of(InodeId inode) SL_EXCLUDES(m_);

  const WallTime mounted_;
  Mutex m_;
  std::unordered_map<InodeId, std::string> data_sets_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::client
