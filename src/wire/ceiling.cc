#include "wire/ceiling.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>

#include "common/bytes.h"
#include "common/errno.h"
#include "common/unique_fd.h"
#include "fuse/memory_vfs.h"
#include "fuse/session.h"

namespace starlane::wire {
namespace {

/// A part of a file in memory, until the last that holds it lets go.
Result<std::shared_ptr<const void>> map(const CeilingFile& file) {
  const UniqueFd fd(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return system_error("cannot open " + file.path, errno);
  void* const at = ::mmap(nullptr, file.length, PROT_READ, MAP_SHARED | MAP_POPULATE, fd.get(),
                          static_cast<off_t>(file.offset));
  if (at == MAP_FAILED) return system_error("cannot map " + file.path, errno);
  return std::shared_ptr<const void>(
      at, [length = file.length](const void* p) { ::munmap(const_cast<void*>(p), length); });
}

class MemoryCeiling final : public Ceiling {
 public:
  MemoryCeiling() : vfs_(fuse::MemoryVfs::Options{}) {}
  ~MemoryCeiling() override { [[maybe_unused]] const Status ignored = stop(); }

  Status begin(const std::string& mountpoint, const std::vector<CeilingFile>& files) {
    for (const CeilingFile& file : files) {
      const std::shared_ptr<const void> hold = SL_TRY(map(file));
      vfs_.add_file(file.name, {static_cast<const std::byte*>(hold.get()), file.length}, hold);
    }
    fuse::SessionOptions options;
    options.mountpoint = mountpoint;
    front_ = SL_TRY(fuse::Session::start(vfs_, options));
    return {};
  }

  Status stop() override { return front_ ? front_->stop() : Status(); }

 private:
  fuse::MemoryVfs vfs_;
  std::unique_ptr<fuse::Session> front_;
};

}  // namespace

Result<std::unique_ptr<Ceiling>> Ceiling::start(const std::string& mountpoint,
                                                const std::vector<CeilingFile>& files) {
  auto ceiling = std::make_unique<MemoryCeiling>();
  SL_TRY(ceiling->begin(mountpoint, files));
  return std::unique_ptr<Ceiling>(std::move(ceiling));
}

}  // namespace starlane::wire
