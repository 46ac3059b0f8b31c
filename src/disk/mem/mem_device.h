// A device in memory that can lose power and fail: what crash tests run the block store on. The
// device outlives the disks that are opened on it, as a real one outlives the processes. Any
// thread.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/mutex.h"
#include "common/rng.h"
#include "disk/disk.h"

namespace starlane {

class MemDevice {
 public:
  struct Options {
    std::uint64_t seed = 1;
    std::uint64_t capacity_bytes = 1_GiB;
    DiskTraits traits = {};  // misaligned transfers are refused as O_DIRECT does
  };

  /// drop: nothing unsynced is left. tear: each unsynced sector, size and name is left or lost by
  /// the seed. kill: only the process dies; everything is left, synced or not as before.
  enum class Crash : std::uint8_t { drop, tear, kill };
  enum class Action : std::uint8_t { read, write, sync, punch, other };

  explicit MemDevice(Options options);

  /// The device as a disk. Refers to *this.
  std::unique_ptr<Disk> disk();

  /// Changes (writes, syncs, holes, creations, removals) so far; each is a place to cut.
  std::uint64_t changes() const SL_EXCLUDES(m_);
  /// The power goes away with the n-th change from now (1: the next one), of which any part may
  /// have happened. From then on everything fails until crash().
  void cut_after(std::uint64_t n) SL_EXCLUDES(m_);
  bool is_cut() const SL_EXCLUDES(m_);
  /// What remains after power loss, or a death. Disks opened before fail for ever; the lock is free
  /// again.
  void crash(Crash how) SL_EXCLUDES(m_);

  /// The next `count` actions of this kind fail so.
  void fail_next(Action action, Errc code, std::uint64_t count = 1) SL_EXCLUDES(m_);
  /// One action in n fails with io, by the seed; 0: none.
  void fail_one_in(std::uint64_t n) SL_EXCLUDES(m_);
  void set_capacity(std::uint64_t bytes) SL_EXCLUDES(m_);
  /// Flips bits of one byte, synced or not, behind everybody's back. False where there is no such
  /// byte.
  bool flip(const std::string& name, std::uint64_t offset, std::byte mask) SL_EXCLUDES(m_);
  /// Replaces the whole contents of a file, or makes it, durably.
  void overwrite(const std::string& name, const std::string& contents) SL_EXCLUDES(m_);

 private:
  friend class MemFile;
  friend class MemDisk;
  using Page = std::array<std::byte, kDiskPage>;
  struct Image {
    std::uint64_t size = 0;
    std::unordered_map<std::uint64_t, Page> pages;
  };
  struct Inode {
    Image now, durable;
    std::map<std::uint64_t, bool> dirty;  // pages that differ, perhaps
  };
  using InodePtr = std::shared_ptr<Inode>;

  /// Whether an action of a disk of this life may go on.
  Status begin(Action action, std::uint64_t life) SL_REQUIRES(m_);
  Status transfer(DiskOperation& op, Inode& inode, std::uint64_t life) SL_EXCLUDES(m_);
  Status write_pieces(const DiskOperation& op, Inode& inode) SL_REQUIRES(m_);
  Status write_bytes(Inode& inode, std::uint64_t offset, ByteSpan bytes) SL_REQUIRES(m_);
  Status check_alignment(const DiskOperation& op) const;
  void tear_inode(Inode& inode, Crash how) SL_REQUIRES(m_);
  void tear_names(Crash how) SL_REQUIRES(m_);
  std::uint64_t used_bytes() const SL_REQUIRES(m_);
  static void make_durable(Inode& inode);
  static void read_image(const Image& image, std::uint64_t offset, MutableByteSpan out);
  static void write_image(Image& image, std::uint64_t offset, ByteSpan bytes);

  const DiskTraits traits_;
  mutable Mutex m_;
  Rng rng_ SL_GUARDED_BY(m_);
  std::uint64_t capacity_ SL_GUARDED_BY(m_);
  std::map<std::string, InodePtr> names_ SL_GUARDED_BY(m_);
  std::map<std::string, InodePtr> durable_names_ SL_GUARDED_BY(m_);
  std::uint64_t life_ SL_GUARDED_BY(m_) = 1;  // disks of an earlier one are dead
  bool locked_ SL_GUARDED_BY(m_) = false;
  std::uint64_t changes_ SL_GUARDED_BY(m_) = 0;
  std::optional<std::uint64_t> cut_at_ SL_GUARDED_BY(m_);
  bool tearing_ SL_GUARDED_BY(m_) = false;  // this very action is cut
  bool cut_ SL_GUARDED_BY(m_) = false;
  std::map<Action, std::pair<Errc, std::uint64_t>> failing_ SL_GUARDED_BY(m_);
  std::uint64_t fail_one_in_ SL_GUARDED_BY(m_) = 0;
};

}  // namespace starlane
