#include "dataset/source_tree.h"

#include <linux/limits.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "common/errno.h"

namespace starlane::dataset {
namespace fs = std::filesystem;
namespace {

bool published(std::string_view name) {
  return name.starts_with("user.") || name.starts_with("system.posix_acl_") ||
         name == "security.capability";
}

Result<Xattrs> xattrs_of(const fs::path& path) {
  Xattrs xattrs;
  std::string names(XATTR_LIST_MAX, '\0'), value(XATTR_SIZE_MAX, '\0');
  const ssize_t all = ::llistxattr(path.c_str(), names.data(), names.size());
  if (all < 0 && errno != ENOTSUP)
    return system_error("cannot list the extended attributes of " + path.string(), errno);
  for (const char* name = names.data(); name < names.data() + all; name += std::strlen(name) + 1) {
    if (!published(name)) continue;
    const ssize_t n = ::lgetxattr(path.c_str(), name, value.data(), value.size());
    if (n < 0) return system_error("cannot read an extended attribute of " + path.string(), errno);
    xattrs[name] = value.substr(0, static_cast<std::size_t>(n));
  }
  return xattrs;
}

Result<SourceEntry> describe(const fs::path& root, const fs::path& path) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0) return system_error("cannot read " + path.string(), errno);
  if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode) && !S_ISLNK(st.st_mode))
    return Status(Errc::unsupported,
                  path.string() + " is a device, socket or pipe; remove it from the data set");
  SourceEntry entry;
  entry.path = path.lexically_relative(root).string();
  entry.mode = st.st_mode;
  entry.uid = st.st_uid;
  entry.gid = st.st_gid;
  entry.length = static_cast<std::uint64_t>(st.st_size);
  entry.mtime = {st.st_mtim.tv_sec, static_cast<std::uint32_t>(st.st_mtim.tv_nsec)};
  entry.xattrs = SL_TRY(xattrs_of(path));
  return entry;
}

}  // namespace

Result<SourceTree> read_source_tree(const fs::path& root) {
  std::error_code failed;
  const fs::file_status status = fs::status(root, failed);
  if (status.type() == fs::file_type::not_found)
    return Status(Errc::not_found, root.string() + " does not exist");
  if (status.type() != fs::file_type::directory)
    return Status(Errc::not_directory,
                  root.string() + " is not a directory; publish takes a directory");
  SourceTree tree;
  tree.root = root;
  auto walk = fs::recursive_directory_iterator(root, failed);
  for (; !failed && walk != fs::recursive_directory_iterator(); walk.increment(failed)) {
    SourceEntry entry = SL_TRY(describe(root, walk->path()));
    if (S_ISDIR(entry.mode)) {
      tree.directories.push_back(std::move(entry));
    } else {
      tree.bytes += S_ISREG(entry.mode) ? entry.length : 0;
      tree.files.push_back(std::move(entry));
    }
  }
  if (failed) return system_error("cannot read " + root.string(), failed.value());
  const auto by_path = [](const SourceEntry& a, const SourceEntry& b) { return a.path < b.path; };
  std::sort(tree.directories.begin(), tree.directories.end(), by_path);  // a prefix sorts first
  std::sort(tree.files.begin(), tree.files.end(), by_path);
  return tree;
}

}  // namespace starlane::dataset
