// One device: a directory of segment files, read and written at any offset by many threads at once,
// and a few small files that are replaced whole. What lies in the files is the caller's business.
// Implementations: posix/ uring/ mem/.
#pragma once
#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/batch.h"
#include "common/bytes.h"
#include "common/status.h"

namespace starlane {

inline constexpr std::uint64_t kDiskPage = 4_KiB;  // unit of aligned transfers and of holes

/// One transfer, owned by the caller until its batch has it done; the disk changes the fields as it
/// goes.
struct DiskOperation {
  enum class Kind : std::uint8_t { read, write, sync };
  Kind kind = Kind::read;
  std::uint8_t count = 0;  // pieces in use
  std::array<iovec, 3>
      pieces{};  // memory in order; every byte is transferred, or the operation fails
  std::uint64_t offset = 0;
  Batch* batch = nullptr;      // done() is called once, by any thread
  const void* file = nullptr;  // the disk's own
};

/// Any thread, any number at once, also on ranges of one file that do not overlap. Offsets, lengths
/// and memory are multiples of the disk's alignment. Closed by the destructor, which wants no
/// operation in flight.
class DiskFile {
 public:
  virtual ~DiskFile() = default;

  /// Starts `op`; may run it in the caller. Blocks only while the device has as many operations as
  /// it may.
  virtual void start(DiskOperation& op) = 0;

  /// All of `out` or an error; io when the file ends before. Blocks.
  virtual Status read(std::uint64_t offset, MutableByteSpan out) = 0;
  /// Blocks until the bytes are the kernel's (they survive this process). no_space leaves any part
  /// of them written.
  virtual Status write(std::uint64_t offset, ByteSpan bytes) = 0;
  /// The same for two pieces in a row, in one transfer.
  virtual Status write(std::uint64_t offset, ByteSpan first, ByteSpan second) = 0;
  /// Blocks until everything written before survives power loss.
  virtual Status sync() = 0;

  /// Gives space back; the range reads as zeros. Whole pages only.
  virtual Status punch(std::uint64_t offset, std::uint64_t length) = 0;
  /// Makes the file reach to offset + length, with space where the device gains from that. no_space
  /// is possible.
  virtual Status reserve(std::uint64_t offset, std::uint64_t length) = 0;
  virtual Status truncate(std::uint64_t length) = 0;
  virtual Result<std::uint64_t> size() const = 0;
  /// Bytes on the device: less than size() by the holes.
  virtual Result<std::uint64_t> allocated() const = 0;
};

struct DiskTraits {
  std::uint64_t alignment = 1;  // of offsets, lengths and memory of transfers: 1 or kDiskPage
  bool in_memory = false;       // tmpfs: a transfer is a copy, so cut it to what caches hold
};

struct DiskSpace {
  std::uint64_t capacity_bytes = 0;
  std::uint64_t free_bytes = 0;  // what this process may still use
};

enum class OpenFile : std::uint8_t { existing, create };  // create: fails with exists

/// Any thread. Files must be closed before their disk. Names have no slash.
class Disk {
 public:
  virtual ~Disk() = default;

  virtual Result<std::unique_ptr<DiskFile>> open(const std::string& name, OpenFile how) = 0;
  virtual Status remove(const std::string& name) = 0;
  /// Names of the directory's files, sorted; those of directories end with '/'.
  virtual Result<std::vector<std::string>> list() const = 0;
  /// Makes creations and removals survive power loss.
  virtual Status sync_directory() = 0;

  /// A small file, whole; at most 1 MiB.
  virtual Result<std::string> load(const std::string& name) const = 0;
  /// Replaces it, all or nothing and durably.
  virtual Status save(const std::string& name, const std::string& contents) = 0;

  /// Takes the directory for this object; busy when another process (or object) has it. Held until
  /// destruction.
  virtual Status lock() = 0;

  virtual Result<DiskSpace> space() const = 0;
  virtual DiskTraits traits() const = 0;
  virtual std::string directory() const = 0;
  /// How transfers are made, for people: "io_uring, O_DIRECT" or "posix, tmpfs".
  virtual std::string describe() const = 0;
};

}  // namespace starlane
