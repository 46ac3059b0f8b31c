#include "dataset/image_tree.h"

#include <sys/stat.h>

#include <deque>

#include "client/names/attributes.h"

namespace starlane::dataset {
namespace {

constexpr std::uint32_t kPageEntries = 1000;

}  // namespace

std::pair<std::string, std::string> split_path(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {"", path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

Result<pb::On> ImageTree::on() {
  const client::Attachment attachment = SL_TRY(image_.attachments.attachment(image_.branch));
  pb::On on;
  on.set_session(attachment.session.value);
  on.set_branch(image_.branch.value);
  on.set_attachment_epoch(attachment.epoch);
  return on;
}

Result<pb::Attributes> ImageTree::make(InodeId parent, const SourceEntry& entry,
                                       const std::string& link_target) {
  pb::CreateRequest request;
  *request.mutable_on() = SL_TRY(on());
  request.set_parent(parent.value);
  request.set_name(split_path(entry.path).second);
  request.mutable_caller()->set_uid(entry.uid);
  request.mutable_caller()->set_gid(entry.gid);
  request.set_mode(entry.mode);
  request.set_target(link_target);
  pb::NewEntry made;
  const Status created = S_ISDIR(entry.mode) ? image_.meta.make_directory({}, request, &made)
                                             : image_.meta.create({}, request, &made);
  if (created.ok()) return made.attributes();
  if (created.code() != Errc::exists) return created;
  pb::LookupRequest again;
  *again.mutable_on() = request.on();
  again.set_parent(parent.value);
  again.set_name(request.name());
  SL_TRY(image_.meta.lookup({}, again, &made));
  if ((made.attributes().mode() & S_IFMT) != (entry.mode & S_IFMT))
    return Status(Errc::exists,
                  entry.path +
                      " was another kind of file when publishing began; remove the unfinished "
                      "version and publish again");
  return made.attributes();
}

Result<pb::Attributes> ImageTree::attributes(InodeId inode) {
  pb::NodeRequest request;
  *request.mutable_on() = SL_TRY(on());
  request.set_inode(inode.value);
  pb::Attributes reply;
  SL_TRY(image_.meta.get_attributes({}, request, &reply));
  return reply;
}

Status ImageTree::truncate(InodeId inode) {
  pb::SetAttributesRequest request;
  *request.mutable_on() = SL_TRY(on());
  request.set_inode(inode.value);
  request.set_length(0);
  pb::Attributes reply;
  return image_.meta.set_attributes({}, request, &reply);
}

Status ImageTree::finish(InodeId inode, const SourceEntry& entry) {
  for (const auto& [name, value] : entry.xattrs) {
    pb::XattrRequest xattr;
    *xattr.mutable_on() = SL_TRY(on());
    xattr.set_inode(inode.value);
    xattr.set_name(name);
    xattr.set_value(value);
    pb::Empty reply;
    SL_TRY(image_.meta.set_xattr({}, xattr, &reply));
  }
  pb::SetAttributesRequest request;
  *request.mutable_on() = SL_TRY(on());
  request.set_inode(inode.value);
  request.set_uid(entry.uid);
  request.set_gid(entry.gid);
  if (!S_ISLNK(entry.mode)) request.set_mode(entry.mode & 07777);
  request.mutable_mtime()->set_seconds(entry.mtime.seconds);
  request.mutable_mtime()->set_nanoseconds(entry.mtime.nanoseconds);
  pb::Attributes reply;
  return image_.meta.set_attributes({}, request, &reply);
}

bool ImageTree::is_finished(const pb::Attributes& found, const SourceEntry& entry) {
  return found.length() == entry.length && found.mtime().seconds() == entry.mtime.seconds &&
         found.mtime().nanoseconds() == entry.mtime.nanoseconds;
}

Result<std::string> ImageTree::link_target(InodeId inode) {
  pb::NodeRequest request;
  *request.mutable_on() = SL_TRY(on());
  request.set_inode(inode.value);
  pb::XattrReply reply;
  SL_TRY(image_.meta.read_link({}, request, &reply));
  return reply.value();
}

Result<Xattrs> ImageTree::xattrs(const pb::Attributes& attributes) {
  Xattrs xattrs;
  if (!client::attributes_of(attributes).has_xattrs) return xattrs;
  pb::NodeRequest request;
  *request.mutable_on() = SL_TRY(on());
  request.set_inode(attributes.inode());
  pb::XattrReply names;
  SL_TRY(image_.meta.list_xattrs({}, request, &names));
  for (const std::string& name : names.names()) {
    pb::XattrRequest xattr;
    *xattr.mutable_on() = request.on();
    xattr.set_inode(attributes.inode());
    xattr.set_name(name);
    pb::XattrReply reply;
    SL_TRY(image_.meta.get_xattr({}, xattr, &reply));
    xattrs[name] = std::move(*reply.mutable_value());
  }
  return xattrs;
}

Result<pb::ReadDirectoryReply> ImageTree::list(InodeId directory, const std::string& after) {
  pb::ReadDirectoryRequest request;
  *request.mutable_on() = SL_TRY(on());
  request.set_inode(directory.value);
  request.set_after(after);
  request.set_limit(kPageEntries);
  request.set_attributes(true);
  pb::ReadDirectoryReply reply;
  SL_TRY(image_.meta.read_directory({}, request, &reply));
  return reply;
}

Status ImageTree::walk(
    const std::function<void(const std::string& path, const pb::Attributes&)>& visit) {
  std::deque<std::pair<std::string, InodeId>> queue{{"", kRootInode}};
  while (!queue.empty()) {
    const auto [path, inode] = queue.front();
    queue.pop_front();
    std::string after;
    for (bool end = false; !end;) {
      const pb::ReadDirectoryReply page = SL_TRY(list(inode, after));
      for (const pb::DirectoryEntry& entry : page.entries()) {
        after = entry.name();
        const std::string at = path.empty() ? after : path + "/" + after;
        if (S_ISDIR(entry.attributes().mode())) queue.emplace_back(at, InodeId(entry.inode()));
        visit(at, entry.attributes());
      }
      end = page.end() || page.entries().empty();
    }
  }
  return {};
}

}  // namespace starlane::dataset
