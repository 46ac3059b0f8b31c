// An image's branch as a tree of paths: the few metadata calls that publishing and verifying need.
// Any thread.
#pragma once
#include <functional>
#include <string>
#include <utility>

#include "dataset/publish.h"

namespace starlane::dataset {

class ImageTree {
 public:
  explicit ImageTree(const ImageAccess& image) : image_(image) {}

  /// Makes a directory, file or link under `parent`, or finds the one that an earlier attempt made.
  Result<pb::Attributes> make(InodeId parent, const SourceEntry& entry,
                              const std::string& link_target);
  Result<pb::Attributes> attributes(InodeId inode);
  /// Owner, permissions, extended attributes and time as the source has them. The last thing done
  /// to an entry: it marks it complete.
  Status finish(InodeId inode, const SourceEntry& entry);
  Status truncate(InodeId inode);
  /// Whether an entry was finished as `entry` is now.
  static bool is_finished(const pb::Attributes& found, const SourceEntry& entry);
  Result<std::string> link_target(InodeId inode);
  Result<Xattrs> xattrs(const pb::Attributes& attributes);
  /// One page of a directory, with attributes.
  Result<pb::ReadDirectoryReply> list(InodeId directory, const std::string& after);
  /// Visits every entry below the top, a directory before what is in it. Reads no file.
  Status walk(const std::function<void(const std::string& path, const pb::Attributes&)>& visit);

 private:
  Result<pb::On> on();

  const ImageAccess image_;
};

/// "a/b/c" -> {"a/b", "c"}; the first is empty at the top.
std::pair<std::string, std::string> split_path(const std::string& path);

}  // namespace starlane::dataset
