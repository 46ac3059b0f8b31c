// Opening /dev/fuse and mounting: by mount(2) as root, through fusermount3 otherwise; dead mounts
// of ours are cleared away first. Functions and an owner without locks: one thread at a time. May
// block on the kernel, never on our own mount.
#pragma once
#include <cstdint>
#include <string>

#include "common/status.h"
#include "common/unique_fd.h"

namespace starlane::fuse {

inline constexpr const char* kFileSystemType = "fuse.starlane";

struct MountOptions {
  std::string mountpoint;
  std::uint32_t max_read = 1 << 20;  // bytes of one READ
};

/// A mounted /dev/fuse. Unmounts lazily at destruction.
class Mount {
 public:
  Mount() = default;
  Mount(Mount&& other) noexcept;
  Mount& operator=(Mount&& other) noexcept;
  ~Mount();

  /// Errors say what to do: no /dev/fuse, no such directory, a live Starlane mount there already,
  /// not permitted.
  static Result<Mount> open(const MountOptions& options);

  /// What another process must know to go on with the mount, and going on.
  struct Facts {
    std::string mountpoint, device_number;
    bool privileged = false, for_all_users = true;
  };
  Facts facts() const { return {mountpoint_, device_number_, privileged_, for_all_users_}; }
  static Mount adopt(UniqueFd device, const Facts& facts);

  int device() const { return device_.get(); }
  const std::string& mountpoint() const { return mountpoint_; }  // absolute, without links
  bool privileged() const {
    return privileged_;
  }  // by mount(2): passthrough and bind mounts are possible
  bool for_all_users() const { return for_all_users_; }

  /// Sets the read-ahead of the mount's device; files opened before keep theirs. unsupported when
  /// not root.
  Status set_read_ahead(std::uint32_t kib) const;
  /// Fails what waits in the kernel and ends the connection, wherever the mount is used still.
  Status abort() const;
  /// Requests that the kernel has sent or queued and that are not answered; -1: it does not say
  /// (the control file system is not mounted, or belongs to another user).
  std::int64_t waiting() const;
  /// Takes it off its place; what is open stays usable. Idempotent.
  void detach();

 private:
  UniqueFd device_;
  std::string mountpoint_;
  std::string device_number_;  // "0:45"
  bool privileged_ = false;
  bool for_all_users_ = true;
  bool attached_ = false;
};

/// Shows a directory of a mount elsewhere. Only as root; `target` must be a directory.
Status bind_mount(const std::string& source, const std::string& target);
/// Lazily; nothing when it is not mounted.
void unmount(const std::string& target);
/// Takes a mount that nobody serves any more off all its places, binds too; nothing when its
/// connection has ended already: the number may be another mount's by now.
void take_away(int device, const std::string& device_number);

/// What lies at a path: nothing of ours, or a mount of ours that answers, or whose process is gone.
enum class MountState { none, live, dead };
MountState state_of_mount(const std::string& path);
/// Of a mount of ours at exactly this path ("0:45"); empty: there is none. Does not touch it.
std::string device_number_of(const std::string& path);

}  // namespace starlane::fuse
