#include "client/node_cache/cache_mount.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
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

}  // namespace

CacheFile::CacheFile(UniqueFd writable, UniqueFd read_only, std::byte* map, std::uint64_t length,
                     Name name)
    : writable_(std::move(writable)),
      read_only_(std::move(read_only)),
      map_(map),
      mapped_(length),
      name_(std::move(name)),
      length_(length) {}

CacheFile::~CacheFile() {
  ::munmap(map_, mapped_);
  if (name_.directory) ::unlinkat(name_.directory->get(), std::to_string(name_.number).c_str(), 0);
}

void CacheFile::populate(std::uint64_t offset, std::uint64_t length) const {
  const std::uint64_t begin = round_down(offset, 4096);
  ::madvise(map_ + begin, offset + length - begin, MADV_POPULATE_READ);
}

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
  const std::uint64_t number = next_name_.fetch_add(1, std::memory_order_relaxed);
  const std::string name = std::to_string(number);
  UniqueFd writable(
      ::openat(writable_->get(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!writable) return system_error("cannot create a file in the node cache", errno);
  UniqueFd read_only(::openat(read_only_.get(), name.c_str(), O_RDONLY | O_CLOEXEC));
  const int failure = errno;
  if (!names_kept_ || !read_only) ::unlinkat(writable_->get(), name.c_str(), 0);
  if (!read_only) return system_error("cannot open a file of the node cache", failure);
  // First the length: huge pages are taken only where they lie within it.
  if (::ftruncate(writable.get(), static_cast<off_t>(length)) != 0) {
    return system_error("cannot size a file of the node cache", errno);
  }
  return map(std::move(writable), std::move(read_only), length, number);
}

Result<std::shared_ptr<CacheFile>> CacheMount::map(UniqueFd writable, UniqueFd read_only,
                                                   std::uint64_t length, std::uint64_t name) {
  void* map = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, writable.get(), 0);
  if (map == MAP_FAILED) return system_error("cannot map a file of the node cache", errno);
  CacheFile::Name kept;
  if (names_kept_) kept = {writable_, name};
  return std::make_shared<CacheFile>(std::move(writable), std::move(read_only),
                                     static_cast<std::byte*>(map), length, std::move(kept));
}

Result<std::unique_ptr<CacheMount>> CacheMount::adopt(int writable, int read_only,
                                                      std::uint64_t first_name) {
  UniqueFd files(::fcntl(writable, F_DUPFD_CLOEXEC, 0));
  UniqueFd view(::fcntl(read_only, F_DUPFD_CLOEXEC, 0));
  if (!files || !view) return system_error("cannot take over the node cache", errno);
  std::unique_ptr<CacheMount> mount(new CacheMount(std::move(files), std::move(view)));
  mount->next_name_ = first_name;
  return mount;
}

Result<std::shared_ptr<CacheFile>> CacheMount::reopen(std::uint64_t number) {
  const std::string name = std::to_string(number);
  UniqueFd writable(::openat(writable_->get(), name.c_str(), O_RDWR | O_CLOEXEC));
  UniqueFd read_only(::openat(read_only_.get(), name.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!writable || !read_only || ::fstat(writable.get(), &status) != 0 || status.st_size == 0)
    return system_error("cannot open a file of the node cache again", errno);
  return map(std::move(writable), std::move(read_only), static_cast<std::uint64_t>(status.st_size),
             number);
}

void CacheMount::remove_others(const std::vector<std::uint64_t>& names) {
  const int listing = ::openat(writable_->get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* directory = listing < 0 ? nullptr : ::fdopendir(listing);
  if (directory == nullptr) return;
  while (const dirent* entry = ::readdir(directory)) {
    const std::uint64_t number = std::strtoull(entry->d_name, nullptr, 10);
    if (number != 0 && std::find(names.begin(), names.end(), number) == names.end())
      ::unlinkat(writable_->get(), entry->d_name, 0);
  }
  ::closedir(directory);
}

}  // namespace starlane::client
