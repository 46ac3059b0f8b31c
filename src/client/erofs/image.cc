#include "client/erofs/image.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "client/erofs/format.h"
#include "common/errno.h"

namespace starlane::client::erofs {
namespace {

Status too_large(const std::string& what) {
  return {Errc::file_too_large, what + "; use the version under public/ instead"};
}

struct Prefix {
  std::string_view text;
  std::uint8_t index;
};
constexpr std::array kPrefixes = {Prefix{"user.", 1}, Prefix{"system.posix_acl_access", 2},
                                  Prefix{"system.posix_acl_default", 3}, Prefix{"trusted.", 4},
                                  Prefix{"security.", 6}};

/// The extended attributes of a node as they follow it; nothing where it has none.
Result<std::string> packed_xattrs(const TreeNode& node) {
  std::string packed;
  if (!node.rest || node.rest->xattrs.empty()) return packed;
  packed.resize(sizeof(XattrHeader));
  for (const auto& xattr : node.rest->xattrs) {
    const auto& name = xattr.first;
    const auto& value = xattr.second;
    const auto prefix = std::find_if(kPrefixes.begin(), kPrefixes.end(), [&](const Prefix& known) {
      return name.starts_with(known.text);
    });
    if (prefix == kPrefixes.end()) continue;  // no file system could give it a meaning here
    const std::string_view rest = std::string_view(name).substr(prefix->text.size());
    if (value.size() > UINT16_MAX)
      return too_large("an extended attribute is longer than 65 535 bytes");
    const XattrEntry entry{.name_length = static_cast<std::uint8_t>(rest.size()),
                           .prefix = prefix->index,
                           .value_length = static_cast<std::uint16_t>(value.size())};
    packed.append(text_of(std::as_bytes(std::span(&entry, 1))));
    packed.append(rest).append(value);
    packed.resize(round_up(packed.size(), 4));
  }
  if (packed.size() > kMostXattrs) return too_large("a file has too many extended attributes");
  return packed;
}

/// Where everything lies; then written, once the image has its size.
class Writer {
 public:
  explicit Writer(Tree& tree) : nodes_(tree.nodes), places_(tree.nodes.size()) {}

  Status place(std::vector<Extent>* extents, std::uint64_t* data_blocks);
  std::uint64_t bytes() const { return end_; }
  void write(MutableByteSpan image, std::uint64_t data_blocks) const;

 private:
  struct Place {
    std::uint64_t at = 0;     // of the inode
    std::uint64_t block = 0;  // of what does not follow the inode: in the image, or on the device
  };

  Status place_inode(std::uint32_t number);
  Status place_data(std::uint32_t number, std::vector<Extent>* extents, std::uint64_t* data_blocks);
  void place_directory(std::uint32_t number);
  std::uint64_t directory_bytes(std::uint32_t number) const;
  Layout layout_of(std::uint32_t number) const;
  std::string_view xattrs_of(std::uint32_t number) const;
  std::uint64_t nid(std::uint32_t number) const { return places_[number].at / kNidUnit; }

  void write_super(MutableByteSpan image, std::uint64_t data_blocks) const;
  void write_inode(MutableByteSpan image, std::uint32_t number) const;
  void write_directory(MutableByteSpan image, std::uint32_t number) const;

  std::vector<TreeNode>& nodes_;
  std::vector<Place> places_;
  std::unordered_map<std::uint32_t, std::string> xattrs_;  // packed
  std::uint64_t end_ = kFirstInode;
};

/// Calls visit(first, last) for the entries of each block.
template <typename Visit>
void each_block(const std::vector<Entry>& entries, Visit visit) {
  std::size_t first = 0;
  std::uint64_t used = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::uint64_t takes = sizeof(Dirent) + entries[i].name.size();
    if (used + takes > kBlock) {
      visit(first, i);
      first = i;
      used = 0;
    }
    used += takes;
  }
  visit(first, entries.size());
}

std::uint64_t Writer::directory_bytes(std::uint32_t number) const {
  std::uint64_t blocks = 0;
  each_block(nodes_[number].rest->entries, [&](std::size_t, std::size_t) { ++blocks; });
  return blocks * kBlock;
}

std::string_view Writer::xattrs_of(std::uint32_t number) const {
  const auto at = xattrs_.find(number);
  return at == xattrs_.end() ? std::string_view() : at->second;
}

Layout Writer::layout_of(std::uint32_t number) const {
  const TreeNode& node = nodes_[number];
  if (S_ISREG(node.mode)) return node.state.length == 0 ? Layout::plain : Layout::chunks;
  if (!S_ISLNK(node.mode)) return Layout::plain;
  // The kernel wants what follows an inode in the inode's own block.
  const std::uint64_t whole = sizeof(Inode) + xattrs_of(number).size() + node.rest->target.size();
  return whole <= kBlock / 2 ? Layout::follows : Layout::plain;
}

Status Writer::place_inode(std::uint32_t number) {
  const TreeNode& node = nodes_[number];
  if (std::string packed = SL_TRY(packed_xattrs(node)); !packed.empty())
    xattrs_.emplace(number, std::move(packed));
  std::uint64_t size = sizeof(Inode) + xattrs_of(number).size();
  const Layout layout = layout_of(number);
  if (layout == Layout::follows) size += node.rest->target.size();
  if (layout == Layout::chunks) size = round_up(size, sizeof(ChunkIndex)) + sizeof(ChunkIndex);
  if (layout == Layout::follows && end_ % kBlock + size > kBlock) end_ = round_up(end_, kBlock);
  places_[number].at = end_;
  end_ = round_up(end_ + size, kNidUnit);
  return {};
}

void Writer::place_directory(std::uint32_t number) {
  TreeNode& node = nodes_[number];
  std::vector<Entry>& entries = node.rest->entries;
  entries.push_back({".", number});
  entries.push_back({"..", node.parent});
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  places_[number].block = end_ / kBlock;
  end_ += directory_bytes(number);
}

/// What does not follow its inode.
Status Writer::place_data(std::uint32_t number, std::vector<Extent>* extents,
                          std::uint64_t* data_blocks) {
  const TreeNode& node = nodes_[number];
  if (S_ISDIR(node.mode)) {
    place_directory(number);
  } else if (S_ISLNK(node.mode) && layout_of(number) == Layout::plain) {
    places_[number].block = end_ / kBlock;
    end_ += round_up(node.rest->target.size(), kBlock);
  } else if (layout_of(number) == Layout::chunks) {
    const std::uint64_t blocks = divide_up(node.state.length, kBlock);
    if (*data_blocks + blocks > kMostBlocks)
      return too_large("the version has more than 16 TiB of files");
    places_[number].block = *data_blocks;
    extents->push_back({static_cast<std::uint32_t>(*data_blocks), node.inode, node.state});
    *data_blocks += blocks;
  }
  return {};
}

Status Writer::place(std::vector<Extent>* extents, std::uint64_t* data_blocks) {
  for (std::uint32_t number = 0; number < nodes_.size(); ++number) SL_TRY(place_inode(number));
  end_ = round_up(end_, kBlock);
  for (std::uint32_t number = 0; number < nodes_.size(); ++number)
    SL_TRY(place_data(number, extents, data_blocks));
  if (end_ / kBlock > kMostBlocks) return too_large("the version has too many files");
  return {};
}

template <typename T>
void put(MutableByteSpan image, std::uint64_t at, const T& value) {
  std::memcpy(image.data() + at, &value, sizeof value);
}
void put(MutableByteSpan image, std::uint64_t at, std::string_view text) {
  std::ranges::copy(bytes_of(text), image.begin() + static_cast<std::ptrdiff_t>(at));
}

void Writer::write_super(MutableByteSpan image, std::uint64_t data_blocks) const {
  SuperBlock super{};
  super.root_nid = static_cast<std::uint16_t>(nid(0));
  super.inodes = nodes_.size();
  super.build_seconds = static_cast<std::uint64_t>(nodes_[0].mtime.seconds);
  super.blocks = static_cast<std::uint32_t>(end_ / kBlock);
  put(image, kSuperAt, super);
  put(image, kDeviceAt, Device{.tag = {}, .blocks = static_cast<std::uint32_t>(data_blocks)});
}

void Writer::write_inode(MutableByteSpan image, std::uint32_t number) const {
  const TreeNode& node = nodes_[number];
  const Place& place = places_[number];
  const std::string_view xattrs = xattrs_of(number);
  const Layout layout = layout_of(number);
  Inode inode{};
  inode.format = static_cast<std::uint16_t>(kExtended | static_cast<std::uint16_t>(layout) << 1);
  if (!xattrs.empty())
    inode.xattrs = static_cast<std::uint16_t>((xattrs.size() - sizeof(XattrHeader)) / 4 + 1);
  inode.mode = static_cast<std::uint16_t>(node.mode);
  inode.length = node.state.length;
  inode.where = static_cast<std::uint32_t>(place.block);
  inode.number = number + 1;
  inode.uid = node.uid;
  inode.gid = node.gid;
  inode.mtime_seconds = static_cast<std::uint64_t>(node.mtime.seconds);
  inode.mtime_nanoseconds = node.mtime.nanoseconds;
  inode.nlink = node.nlink;
  std::uint64_t next = place.at + sizeof inode;
  put(image, next, xattrs);
  next += xattrs.size();
  if (S_ISDIR(node.mode)) {
    inode.length = directory_bytes(number);
  } else if (S_ISLNK(node.mode)) {
    inode.length = node.rest->target.size();
    put(image, layout == Layout::follows ? next : place.block * kBlock,
        std::string_view(node.rest->target));
  } else if (!S_ISREG(node.mode)) {
    inode.where = node.rdev;
  } else if (layout == Layout::chunks) {
    inode.where = kOneChunk;
    put(image, round_up(next, sizeof(ChunkIndex)),
        ChunkIndex{.device = 1, .block = static_cast<std::uint32_t>(place.block)});
  }
  put(image, place.at, inode);
}

void Writer::write_directory(MutableByteSpan image, std::uint32_t number) const {
  const std::vector<Entry>& entries = nodes_[number].rest->entries;
  std::uint64_t block = places_[number].block * kBlock;
  each_block(entries, [&](std::size_t first, std::size_t last) {
    std::uint64_t name_at = sizeof(Dirent) * (last - first);
    for (std::size_t i = first; i < last; ++i) {
      const Entry& entry = entries[i];
      put(image, block + sizeof(Dirent) * (i - first),
          Dirent{.nid = nid(entry.node),
                 .name_at = static_cast<std::uint16_t>(name_at),
                 .type = type_of(nodes_[entry.node].mode)});
      put(image, block + name_at, std::string_view(entry.name));
      name_at += entry.name.size();
    }
    block += kBlock;
  });
}

void Writer::write(MutableByteSpan image, std::uint64_t data_blocks) const {
  write_super(image, data_blocks);
  for (std::uint32_t number = 0; number < nodes_.size(); ++number) {
    write_inode(image, number);
    if (S_ISDIR(nodes_[number].mode)) write_directory(image, number);
  }
}

}  // namespace

Result<std::shared_ptr<const Image>> Image::make(Tree tree, std::uint64_t most_bytes) {
  std::shared_ptr<Image> image(new Image());
  Writer writer(tree);
  SL_TRY(writer.place(&image->extents_, &image->data_blocks_));
  if (writer.bytes() > most_bytes)
    return too_large("the names of this version take " + std::to_string(writer.bytes() >> 20) +
                     " MiB of memory and " + std::to_string(most_bytes >> 20) + " MiB are allowed");
  void* memory = ::mmap(nullptr, writer.bytes(), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return system_error("no memory for the names of this version", errno);
  image->bytes_ = {static_cast<std::byte*>(memory), writer.bytes()};
  writer.write(image->bytes_, image->data_blocks_);
  return std::shared_ptr<const Image>(std::move(image));
}

Image::~Image() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

std::vector<Image::Part> Image::parts(std::uint64_t offset, std::uint64_t length) const {
  std::vector<Part> parts;
  const std::uint64_t end = std::min(data_length(), offset + length);
  auto extent =
      std::upper_bound(extents_.begin(), extents_.end(), offset / kBlock,
                       [](std::uint64_t block, const Extent& one) { return block < one.block; });
  if (offset < end) --extent;
  for (; offset < end; ++extent) {
    const std::uint64_t begin = extent->block * kBlock;
    const std::uint64_t data_end = begin + extent->state.length;
    const std::uint64_t block_end = std::min(end, round_up(data_end, kBlock));
    if (offset < data_end) {
      const std::uint64_t take = std::min(end, data_end) - offset;
      parts.push_back({&*extent, offset - begin, take});
      offset += take;
    }
    if (offset < block_end) parts.push_back({nullptr, 0, block_end - offset});
    offset = std::max(offset, block_end);
  }
  return parts;
}

}  // namespace starlane::client::erofs
