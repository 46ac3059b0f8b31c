// The two files by which the kernel mounts a published version by itself, as EROFS: in public/NAME,
// `.VERSION.names` is the image and `.VERSION.data` the device with its files' bytes. They are not
// listed. Nothing of them is remembered from one daemon to the next: the node says which tree and
// which of the two, so does the handle, and the image of a frozen tree is always the same.
#include <sys/stat.h>

#include "client/mount/call.h"
#include "client/open_flags.h"

namespace starlane::client {
namespace {

using erofs::Image;

constexpr std::uint8_t kNames = 255, kData = 254;              // incarnations that no directory has
constexpr std::uint64_t kHandleMark = std::uint64_t{1} << 63;  // above every counted handle
constexpr std::uint64_t kLeastBytes = 96;                      // of a name and its file in an image
constexpr std::string_view kNamesEnd = ".names", kDataEnd = ".data";

Node tree_file(const View& view, std::uint8_t which) { return {view.slot, which, kRootInode}; }

erofs::TreeNode node_of(const Attributes& attributes, std::uint32_t parent) {
  erofs::TreeNode node;
  node.mode = attributes.mode;
  node.nlink = attributes.nlink;
  node.uid = attributes.uid;
  node.gid = attributes.gid;
  node.rdev = attributes.rdev;
  node.parent = parent;
  node.mtime = attributes.mtime;
  node.inode = attributes.inode;
  node.state = attributes.state();
  return node;
}

}  // namespace

bool MountCore::is_tree_file(Node node) {
  return node.slot != 0 && node.inode == kRootInode && node.incarnation != 0;
}
bool MountCore::is_tree_handle(std::uint64_t handle) { return (handle & kHandleMark) != 0; }
std::uint16_t MountCore::slot_of_tree(std::uint64_t handle) {
  return static_cast<std::uint16_t>(handle);
}

// ---- Names ----

Result<EntryReply> MountCore::lookup_tree_file(const Caller& caller, InodeId directory,
                                               std::string_view name, const Listing& listing) {
  if (caller.uid != 0) return EntryReply{};  // who mounts is root
  const bool names = name.ends_with(kNamesEnd);
  if (!name.starts_with('.') || (!names && !name.ends_with(kDataEnd))) return EntryReply{};
  const std::size_t end = names ? kNamesEnd.size() : kDataEnd.size();
  const auto version = own_.find(directory, name.substr(1, name.size() - 1 - end), listing);
  if (!version || !version->item || version->item->target.image_name.empty()) return EntryReply{};
  View* view = SL_TRY(views_.attach(*version->item, caller.unique));
  if (!view->frozen()) return EntryReply{};
  EntryReply reply;
  reply.node = tree_file(*view, names ? kNames : kData);
  reply.entry_valid = options_.names.shared_ttl;
  reply.attributes = SL_TRY(tree_file_attributes(caller, reply.node));
  return reply;
}

Result<AttributesReply> MountCore::tree_file_attributes(const Caller& caller, Node node) {
  View* view = SL_TRY(views_.at(node.slot));
  const erofs::Images::Made image = SL_TRY(tree_image(*view, erofs::Images::Keep::for_now, caller));
  Attributes attributes = SL_TRY(fetch(*view, kRootInode, caller.unique)).value;
  attributes.mode = S_IFREG | 0400;  // whoever reads it reads what modes keep from others
  attributes.nlink = 1;
  attributes.uid = attributes.gid = 0;
  attributes.length = node.incarnation == kNames ? image->bytes().size() : image->data_length();
  attributes.bytes = attributes.length;
  attributes.inode = InodeId(kInodeLimit - node.incarnation);
  return AttributesReply{stat_of(view->view(), attributes, std::nullopt),
                         options_.names.frozen_ttl};
}

// ---- The image ----

Result<erofs::Images::Made> MountCore::tree_image(View& view, erofs::Images::Keep keep,
                                                  const Caller& caller) {
  return images_.get(
      view.slot, keep, [&](std::uint64_t most) { return read_tree(view, caller, most); },
      [&] { return sessions_.signals().check(caller.unique); });
}

Result<erofs::Images::Made> MountCore::read_tree(View& view, const Caller& caller,
                                                 std::uint64_t most_bytes) {
  erofs::Tree tree;
  std::unordered_map<InodeId, std::uint32_t> linked;  // files with several names
  const auto add = [&](const Attributes& attributes,
                       std::uint32_t parent) -> Result<std::uint32_t> {
    const auto number = static_cast<std::uint32_t>(tree.nodes.size());
    if (!attributes.is_directory() && attributes.nlink > 1) {
      const auto [at, added] = linked.emplace(attributes.inode, number);
      if (!added) return at->second;
    }
    tree.nodes.push_back(node_of(attributes, parent));
    SL_TRY(read_rest(view, caller, attributes, tree.nodes.back()));
    return number;
  };
  const Believed<Attributes> root = SL_TRY(fetch(view, kRootInode, caller.unique));
  SL_TRY(add(root.value, 0));
  // Directories that are found stand behind, so the whole tree is read.
  for (std::uint32_t number = 0; number < tree.nodes.size(); ++number) {
    if (!S_ISDIR(tree.nodes[number].mode)) continue;
    const InodeId directory = tree.nodes[number].inode;
    std::vector<erofs::Entry> entries;
    for (bool end = false; !end;) {
      SL_TRY(sessions_.signals().check(caller.unique));
      if (tree.nodes.size() > most_bytes / kLeastBytes)
        return {Errc::no_memory, "this version has more names than this mount may keep in memory"};
      const std::string after = entries.empty() ? std::string() : entries.back().name;
      const pb::ReadDirectoryReply page =
          SL_TRY(ask_page(view, directory, after, true, caller.unique));
      for (const pb::DirectoryEntry& entry : page.entries()) {
        const std::uint32_t node = SL_TRY(add(attributes_of(entry.attributes()), number));
        entries.push_back({entry.name(), node});
      }
      end = page.end();
    }
    tree.nodes[number].rest->entries = std::move(entries);
  }
  return Image::make(std::move(tree), most_bytes);
}

Status MountCore::read_rest(View& view, const Caller& caller, const Attributes& attributes,
                            erofs::TreeNode& node) {
  const bool link = S_ISLNK(attributes.mode);
  if (!link && !attributes.is_directory() && !attributes.has_xattrs) return {};
  node.rest = std::make_unique<erofs::Rest>();
  const Node own{view.slot, 0, attributes.inode};
  if (link) node.rest->target = SL_TRY(read_link(caller, own));
  if (!attributes.has_xattrs) return {};
  const NameCache::Xattrs names = SL_TRY(xattr_names(view, attributes.inode, caller.unique));
  for (const std::string& name : *names) {
    std::string value = SL_TRY(get_xattr(caller, own, name));
    node.rest->xattrs.emplace_back(name, std::move(value));
  }
  return {};
}

// ---- Opens and bytes ----

Result<OpenReply> MountCore::open_tree_file(const Caller& caller, Node node, std::uint32_t flags) {
  if (writes(flags)) return {Errc::read_only, "a published data set cannot be changed"};
  View* view = SL_TRY(views_.at(node.slot));
  SL_TRY(tree_image(*view, erofs::Images::Keep::for_now, caller));
  images_.opened(node.slot);
  OpenReply reply;
  reply.handle = kHandleMark | std::uint64_t{node.incarnation} << 16 | node.slot;
  reply.mode = OpenMode::direct;  // what is read is cached by whoever mounts it
  reply.unflushed = true;
  return reply;
}

Result<std::vector<Piece>> MountCore::read_tree_file(const Caller& caller, std::uint64_t handle,
                                                     std::uint64_t offset, std::uint32_t length) {
  static const std::vector<std::byte> kZeros(erofs::kBlock);
  View* view = SL_TRY(views_.at(slot_of_tree(handle)));
  const auto image = SL_TRY(tree_image(*view, erofs::Images::Keep::until_closed, caller));
  std::vector<Piece> pieces;
  if (static_cast<std::uint8_t>(handle >> 16) == kNames) {
    const ByteSpan bytes = image->bytes();
    const std::uint64_t begin = std::min<std::uint64_t>(offset, bytes.size());
    pieces.push_back(
        {bytes.subspan(begin, std::min<std::uint64_t>(length, bytes.size() - begin)), image});
    return pieces;
  }
  for (const Image::Part& part : image->parts(offset, length)) {
    if (part.extent == nullptr) {
      pieces.push_back({ByteSpan(kZeros).first(part.length), nullptr});
      continue;
    }
    auto read = SL_TRY(io_.read(view->file(part.extent->inode), part.extent->state, part.offset,
                                static_cast<std::uint32_t>(part.length), nullptr, caller.unique));
    std::move(read.begin(), read.end(), std::back_inserter(pieces));
  }
  return pieces;
}

}  // namespace starlane::client
