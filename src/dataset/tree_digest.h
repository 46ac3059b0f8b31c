// The digest of a whole tree: equal iff names, types, permissions, extended attributes and contents
// are equal, in whatever order it was walked. Pure; one thread.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "codec/content_hash.h"
#include "dataset/source_tree.h"

namespace starlane::dataset {

class TreeDigest {
 public:
  /// path: relative, with '/'. mode: as st_mode. hash: of the content of a file, or of the target
  /// of a link.
  void add(const std::string& path, std::uint32_t mode, std::uint64_t length,
           const ContentHash& hash, const Xattrs& xattrs);
  std::string finish() const;

 private:
  std::map<std::string, std::string> lines_;
};

}  // namespace starlane::dataset
