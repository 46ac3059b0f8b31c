#include "dataset/tree_digest.h"

#include <cstdio>

namespace starlane::dataset {
namespace {

void update(ContentHasher& hasher, std::string_view text) {
  hasher.update(bytes_of(text));
  hasher.update(bytes_of(std::string_view("\0", 1)));
}

}  // namespace

void TreeDigest::add(const std::string& path, std::uint32_t mode, std::uint64_t length,
                     const ContentHash& hash, const Xattrs& xattrs) {
  char head[64];
  std::snprintf(head, sizeof head, "%o %llu ", mode, static_cast<unsigned long long>(length));
  std::string& line = lines_[path] = head + to_hex(hash);
  if (xattrs.empty()) return;
  ContentHasher hasher;
  for (const auto& [name, value] : xattrs) {
    update(hasher, name);
    update(hasher, std::to_string(value.size()));
    update(hasher, value);
  }
  line += " " + to_hex(hasher.finish());
}

std::string TreeDigest::finish() const {
  ContentHasher hasher;
  for (const auto& [path, line] : lines_) {
    update(hasher, line);
    update(hasher, path);
  }
  return "sha256:" + to_hex(hasher.finish());
}

}  // namespace starlane::dataset
