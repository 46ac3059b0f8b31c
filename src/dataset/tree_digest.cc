#include "dataset/tree_digest.h"

#include <cstdio>

namespace starlane::dataset {

void TreeDigest::add(const std::string& path, std::uint32_t mode, std::uint64_t length,
                     const ContentHash& hash) {
  char head[64];
  std::snprintf(head, sizeof head, "%o %llu ", mode, static_cast<unsigned long long>(length));
  lines_[path] = head + to_hex(hash);
}

std::string TreeDigest::finish() const {
  ContentHasher hasher;
  for (const auto& [path, line] : lines_) {
    hasher.update(bytes_of(line));
    hasher.update(bytes_of(std::string_view("\0", 1)));
    hasher.update(bytes_of(path));
    hasher.update(bytes_of(std::string_view("\0", 1)));
  }
  return "sha256:" + to_hex(hasher.finish());
}

}  // namespace starlane::dataset
