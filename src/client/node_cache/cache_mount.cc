#include "client/node_cache/cache_mount.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <string>

#include "common/errno.h"

namespace starlane::client {
namespace {

Result<UniqueFd> mount_tmpfs(std::uint64_t limit_bytes) {
  const UniqueFd context(::fsopen("tmpfs", FSOPEN_CLOEXEC));
  if (!context) {
    if (errno == EPERM) return Status(Errc::not_permitted, "the node cache needs root");
    return system_error("this kernel cannot make a detached tmpfs (fsopen)", errno);
  }
  const std::string size = std::to_string(limit_bytes);
  const auto set = [&](const char* key, const char* value) {
    return ::fsconfig(context.get(), FSCONFIG_SET_STRING, key, value, 0) == 0;
  };
  if (!set("size", size.c_str()) || !set("mode", "0700"))
    return system_error("cannot size a tmpfs", errno);
  set("huge", "within_size");  // a kernel without huge pages maps small ones: slower, not wrong
  if (::fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) {
    return system_error("cannot make a tmpfs", errno);
  }
  UniqueFd mounted(::fsmount(context.get(), FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
  if (!mounted) return system_error("cannot mount a tmpfs", errno);
  return mounted;
}

UniqueFd clone_of(int mount) {
  return UniqueFd(::open_tree(mount, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH));
}

// Before Linux 6.15 only an attached mount can be cloned: it is attached for a moment.
UniqueFd clone_attached(int mount) {
  char place[] = "/tmp/starlane-cache-XXXXXX";
  if (::mkdtemp(place) == nullptr) return {};
  UniqueFd clone;
  if (::move_mount(mount, "", AT_FDCWD, place, MOVE_MOUNT_F_EMPTY_PATH) == 0) {
    clone = clone_of(mount);
    ::umount2(place, MNT_DETACH);
  }
  ::rmdir(place);
  return clone;
}

Result<UniqueFd> read_only_view(int mount) {
  UniqueFd clone = clone_of(mount);
  if (!clone) clone = clone_attached(mount);
  if (!clone) return system_error("cannot clone the mount of the node cache", errno);
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_RDONLY;
  if (::mount_setattr(clone.get(), "", AT_EMPTY_PATH, &attributes, sizeof attributes) != 0) {
    return system_error("cannot make the view of the node cache read-only", errno);
  }
  return clone;
}

std::uint64_t memory_figure(const char* key) {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;) {
    std::uint64_t kib = 0;
    if (word == key && file >> kib) return kib << 10;
  }
  return 0;
}

// The tightest limit on the way to the root of the hierarchy; UINT64_MAX when there is none.
std::uint64_t control_group_limit() {
  std::ifstream groups("/proc/self/cgroup");
  std::uint64_t limit = UINT64_MAX;
  for (std::string line; std::getline(groups, line);) {
    if (line.rfind("0::", 0) != 0) continue;
    for (std::string path = line.substr(3);;) {
      std::ifstream file("/sys/fs/cgroup" + path + "/memory.max");
      std::uint64_t bytes = 0;
      if (file >> bytes) limit = std::min(limit, bytes);
      const std::size_t slash = path.rfind('/');
      if (path.empty() || slash == std::string::npos) break;
      path.resize(slash);
    }
  }
  return limit;
}

}  // namespace

CacheFile::CacheFile(UniqueFd writable, UniqueFd read_only, std::byte* map, std::uint64_t length)
    : writable_(std::move(writable)),
      read_only_(std::move(read_only)),
      map_(map),
      mapped_(length),
      length_(length) {}

CacheFile::~CacheFile() { ::munmap(map_, mapped_); }

Status CacheFile::write(std::uint64_t offset, ByteSpan bytes) {
  const std::uint64_t end = offset + bytes.size();
  SL_TRY(write_at(writable_.get(), offset, bytes));
  std::uint64_t known = length_.load(std::memory_order_relaxed);
  while (known < end && !length_.compare_exchange_weak(known, end, std::memory_order_relaxed)) {
  }
  return {};
}

Status CacheFile::truncate(std::uint64_t length) {
  if (::ftruncate(writable_.get(), static_cast<off_t>(length)) != 0) {
    return system_error("cannot cut a file of the node cache", errno);
  }
  length_.store(length, std::memory_order_relaxed);
  return {};
}

Status CacheFile::zero(std::uint64_t offset, std::uint64_t length) {
  if (::fallocate(writable_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(offset), static_cast<off_t>(length)) != 0) {
    return system_error("cannot zero a part of a file of the node cache", errno);
  }
  return {};
}

Result<std::unique_ptr<CacheMount>> CacheMount::make(std::uint64_t limit_bytes) {
  UniqueFd writable = SL_TRY(mount_tmpfs(limit_bytes));
  UniqueFd read_only = SL_TRY(read_only_view(writable.get()));
  return std::unique_ptr<CacheMount>(new CacheMount(std::move(writable), std::move(read_only)));
}

Result<std::shared_ptr<CacheFile>> CacheMount::create(std::uint64_t length) {
  const std::string name = std::to_string(next_name_.fetch_add(1, std::memory_order_relaxed));
  UniqueFd writable(
      ::openat(writable_.get(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!writable) return system_error("cannot create a file in the node cache", errno);
  UniqueFd read_only(::openat(read_only_.get(), name.c_str(), O_RDONLY | O_CLOEXEC));
  const int failure = errno;
  ::unlinkat(writable_.get(), name.c_str(), 0);
  if (!read_only) return system_error("cannot open a file of the node cache", failure);
  // First the length: huge pages are taken only where they lie within it.
  if (::ftruncate(writable.get(), static_cast<off_t>(length)) != 0) {
    return system_error("cannot size a file of the node cache", errno);
  }
  void* map = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, writable.get(), 0);
  if (map == MAP_FAILED) return system_error("cannot map a file of the node cache", errno);
  return std::make_shared<CacheFile>(std::move(writable), std::move(read_only),
                                     static_cast<std::byte*>(map), length);
}

std::uint64_t default_cache_budget() {
  return std::min(memory_figure("MemTotal:") / 4, control_group_limit() / 2);
}

std::uint64_t available_memory() { return memory_figure("MemAvailable:"); }

}  // namespace starlane::client
