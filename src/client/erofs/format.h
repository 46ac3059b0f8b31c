// What lies in an EROFS image, as the kernel reads it (fs/erofs/erofs_fs.h, since Linux 5.16): the
// part that we write. Little-endian.
#pragma once
#include <sys/stat.h>

#include <cstdint>

#include "common/bytes.h"

namespace starlane::client::erofs {

inline constexpr std::uint64_t kSuperAt = 1024;
inline constexpr std::uint64_t kDeviceAt = kSuperAt + 128;
inline constexpr std::uint64_t kFirstInode = kDeviceAt + 128;
inline constexpr std::uint64_t kNidUnit = 32;  // an inode's number is its place in these
inline constexpr std::uint64_t kMostBlocks = UINT32_MAX;
inline constexpr std::uint16_t kExtended = 1;  // an inode of 64 bytes
inline constexpr std::uint64_t kMostXattrs = 4ULL * UINT16_MAX;

/// How an inode's data lie: in blocks of their own, right behind it, or by a list of chunks.
enum class Layout : std::uint16_t { plain = 0, follows = 2, chunks = 4 };

/// Chunks of 2^31 blocks, so that every file is one; found by an index that names a device.
inline constexpr std::uint32_t kOneChunk = 31 | 0x20;

struct SuperBlock {
  std::uint32_t magic = 0xE0F5E1E2;
  std::uint32_t checksum = 0;
  std::uint32_t compatible = 0;
  std::uint8_t block_bits = 12;
  std::uint8_t extension_slots = 0;
  std::uint16_t root_nid = 0;
  std::uint64_t inodes = 0;
  std::uint64_t build_seconds = 0;
  std::uint32_t build_nanoseconds = 0;
  std::uint32_t blocks = 0;
  std::uint32_t inode_area = 0;  // in blocks: inodes are counted from the image's begin
  std::uint32_t xattr_area = 0;
  std::uint8_t uuid[16] = {};
  std::uint8_t volume[16] = {};
  std::uint32_t incompatible = 0x4 | 0x8;  // files of chunks; a table of devices
  std::uint16_t compression = 0;
  std::uint16_t devices = 1;
  std::uint16_t device_slot = kDeviceAt / 128;
  std::uint8_t reserved[38] = {};
};
static_assert(sizeof(SuperBlock) == 128);

struct Device {
  std::uint8_t tag[64] = {};
  std::uint32_t blocks = 0;
  std::uint32_t mapped = 0;
  std::uint8_t reserved[56] = {};
};
static_assert(sizeof(Device) == 128);

struct Inode {
  std::uint16_t format = 0;
  std::uint16_t xattrs = 0;  // in units of 4 bytes behind the header, and one for that
  std::uint16_t mode = 0;
  std::uint16_t reserved = 0;
  std::uint64_t length = 0;
  std::uint32_t where = 0;  // first block, device number, or the form of the chunks
  std::uint32_t number = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint64_t mtime_seconds = 0;
  std::uint32_t mtime_nanoseconds = 0;
  std::uint32_t nlink = 0;
  std::uint8_t unused[16] = {};
};
static_assert(sizeof(Inode) == 64);

struct ChunkIndex {
  std::uint16_t block_high = 0;
  std::uint16_t device = 0;
  std::uint32_t block = 0;
};
static_assert(sizeof(ChunkIndex) == 8);

struct [[gnu::packed]] Dirent {
  std::uint64_t nid = 0;
  std::uint16_t name_at = 0;  // in the block; a name ends where the next begins
  std::uint8_t type = 0;
  std::uint8_t reserved = 0;
};
static_assert(sizeof(Dirent) == 12);

struct XattrHeader {
  std::uint32_t filter = 0;
  std::uint8_t shared = 0;
  std::uint8_t reserved[7] = {};
};
static_assert(sizeof(XattrHeader) == 12);

struct XattrEntry {
  std::uint8_t name_length = 0;
  std::uint8_t prefix = 0;
  std::uint16_t value_length = 0;
};
static_assert(sizeof(XattrEntry) == 4);

/// The kernel's FT_ numbers.
constexpr std::uint8_t type_of(std::uint32_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG:
      return 1;
    case S_IFDIR:
      return 2;
    case S_IFCHR:
      return 3;
    case S_IFBLK:
      return 4;
    case S_IFIFO:
      return 5;
    case S_IFSOCK:
      return 6;
    case S_IFLNK:
      return 7;
    default:
      return 0;
  }
}

}  // namespace starlane::client::erofs
