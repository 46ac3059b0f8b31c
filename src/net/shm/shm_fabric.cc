#include "net/shm/shm_fabric.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "common/errno.h"

namespace starlane::net {
namespace {

constexpr std::uint64_t kRegionLimit = 64_MiB;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
const std::string kOffer = "starlane shared memory 1";  // the descriptor says the rest

/// A shared mapping of a whole file.
class Mapping {
 public:
  static Result<Mapping> of(int descriptor, std::uint64_t bytes) {
    void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (at == MAP_FAILED) return system_error("cannot map shared memory", errno);
    return Mapping({static_cast<std::byte*>(at), bytes});
  }
  Mapping(Mapping&& other) noexcept : span_(std::exchange(other.span_, {})) {}
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping() {
    if (!span_.empty()) ::munmap(span_.data(), span_.size());
  }
  MutableByteSpan span() const { return span_; }

 private:
  explicit Mapping(MutableByteSpan span) : span_(span) {}
  MutableByteSpan span_;
};

class ShmRegion final : public ExposedMemory {
 public:
  ShmRegion(UniqueFd descriptor, Mapping mapping)
      : descriptor_(std::move(descriptor)), mapping_(std::move(mapping)) {}
  MutableByteSpan region() override { return mapping_.span(); }
  const std::string& offer() const override { return kOffer; }
  int descriptor() const override { return descriptor_.get(); }
  void progress() override {}

 private:
  const UniqueFd descriptor_;
  const Mapping mapping_;
};

class ShmReached final : public ReachedMemory {
 public:
  explicit ShmReached(Mapping mapping) : mapping_(std::move(mapping)) {}
  std::uint64_t size() const override { return mapping_.span().size(); }
  MutableByteSpan here() override { return mapping_.span(); }

 private:
  const Mapping mapping_;
};

/// The size of what a peer handed over, if it is memory that keeps it: a file that shrinks while it
/// is mapped kills its reader.
Result<std::uint64_t> sealed_size(int descriptor) {
  struct stat info {};
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || ::fstat(descriptor, &info) != 0)
    return Status(Errc::invalid, "exposed memory that is not sealed");
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size == 0 || size > kRegionLimit)
    return Status(Errc::invalid, "exposed memory of no possible size");
  return size;
}

class ShmFabric final : public MemoryFabric {
 public:
  Result<std::unique_ptr<ExposedMemory>> expose(std::uint64_t bytes) override {
    if (bytes == 0 || bytes > kRegionLimit)
      return Status(Errc::invalid, "a region of no possible size");
    UniqueFd fd(::memfd_create("starlane-bulk", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
        ::fcntl(fd.get(), F_ADD_SEALS, kSeals | F_SEAL_SEAL) != 0)
      return system_error("cannot make shared memory", errno);
    Mapping mapping = SL_TRY(Mapping::of(fd.get(), bytes));
    return std::unique_ptr<ExposedMemory>(
        std::make_unique<ShmRegion>(std::move(fd), std::move(mapping)));
  }
  Result<std::unique_ptr<ReachedMemory>> reach(ByteSpan offer, UniqueFd descriptor) override {
    if (text_of(offer) != kOffer || !descriptor)
      return Status(Errc::invalid, "an offer of exposed memory that cannot be read");
    const std::uint64_t size = SL_TRY(sealed_size(descriptor.get()));
    Mapping mapping = SL_TRY(Mapping::of(descriptor.get(), size));
    return std::unique_ptr<ReachedMemory>(std::make_unique<ShmReached>(std::move(mapping)));
  }
};

}  // namespace

std::unique_ptr<MemoryFabric> make_shm_fabric() { return std::make_unique<ShmFabric>(); }

}  // namespace starlane::net
