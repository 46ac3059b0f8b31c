// Where a node lies, as the kernel found it.
#include "client/mount/core.h"

namespace starlane::client {
namespace {

constexpr int kDepth = 512;  // beyond that two names have been moved under each other meanwhile

std::string root_of(const AttachTarget& target) {
  if (!target.volume.empty()) return "volumes/" + target.volume;
  return "public/" + target.image_name + "/" + target.image_version;
}

}  // namespace

std::string MountCore::path_of(Node node) {
  if (node.slot == 0) return own_.path_of(node.inode).value_or("");
  const View* view = views_.known(node.slot);
  if (view == nullptr) return {};
  std::string path;
  for (int depth = 0; node.inode != kRootInode; ++depth) {
    const auto by = nodes_.found_by(node);
    if (!by || depth == kDepth) return {};
    path = "/" + by->name + path;
    node = {node.slot, 0, by->parent};  // a directory has one incarnation
  }
  return root_of(view->attached->target) + path;
}

}  // namespace starlane::client
