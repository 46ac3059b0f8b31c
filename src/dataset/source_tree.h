// What lies in a local directory that is to be published. Blocks on the disk; one thread.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/status.h"

namespace starlane::dataset {

/// Names and values: of users, access lists, capabilities; not what a local file system or security
/// module keeps for itself.
using Xattrs = std::map<std::string, std::string>;

struct SourceEntry {
  std::string path;  // relative to the source
  std::uint32_t mode = 0;
  std::uint32_t uid = 0, gid = 0;
  std::uint64_t length = 0;
  WallTime mtime;
  Xattrs xattrs;
};

struct SourceTree {
  std::filesystem::path root;
  std::vector<SourceEntry>
      directories;  // a parent before its children; the root itself is not among them
  std::vector<SourceEntry> files;  // and symbolic links, in path order
  std::uint64_t bytes = 0;
};

/// Errors: not_found, not_directory, access; unsupported for a device, socket or pipe, named with
/// what to do.
Result<SourceTree> read_source_tree(const std::filesystem::path& root);

}  // namespace starlane::dataset
